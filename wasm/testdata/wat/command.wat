;; A command, not a reactor: it exits in _start.
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (func (export "_start") (call $proc_exit (i32.const 0)))
  (func (export "handle_request") (result i64) (i64.const 1)))
