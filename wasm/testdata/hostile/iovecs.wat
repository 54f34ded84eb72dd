;; fd_write of a million empty buffers.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1000000) (i32.const 0)))
      (br $again))
    (i64.const 1)))
