;; fd_pwrite of 2 million empty buffers.
(module
  (import "wasi_snapshot_preview1" "fd_pwrite" (func $fd_pwrite (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (call $fd_pwrite (i32.const 1) (i32.const 64) (i32.const 2000000) (i64.const 0) (i32.const 0)))
      (br $again))
    (i64.const 1)))
