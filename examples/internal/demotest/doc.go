// Package demotest drives the example programs as a newcomer runs them: it builds a binary ([Main]), starts it ([Start]), reads
// what it prints, and checks what all examples have in common ([OnEachRedis], [Signals], [Failures]).
package demotest
