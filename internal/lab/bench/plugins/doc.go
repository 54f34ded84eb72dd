// Package plugins compares WebAssembly hosts on the same work: find the lock's key, the header
// X-Tenant, for one request.
//
//	go test -C internal/lab/bench ./plugins -bench . -benchtime 2s
//
// Time is what the processors spent (cpu-ns/op), which another program on the machine does not
// change much, beside the wall clock's. Each host runs a guest that is written by hand and does
// nothing else, so the time is the host's. Rows with a deadline stop a guest that loops; the others
// do not.
package plugins
