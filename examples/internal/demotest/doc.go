// Package demotest drives the examples as a user would. It builds a binary ([Main]), starts it
// ([Start]), reads its output, and checks what all examples share ([OnEachRedis], [Signals],
// [Failures]).
package demotest
