// Package demo is what the example programs have in common and what is not about locks: a program ([Main]) that opens Redis,
// serves, shows what becomes of requests that collide ([Collide], [Show], [Quote]), and ends on Ctrl-C.
package demo
