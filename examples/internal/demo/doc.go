// Package demo is what the examples share apart from locks: a program ([Main]) that opens Redis,
// serves, shows what happens to colliding requests ([Collide], [Show], [Quote]), and stops on
// Ctrl-C.
package demo
