;; fd_write of 15 MiB of empty lines.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (memory.fill (i32.const 0) (i32.const 10) (i32.const 0x1000000))
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 0xf00000))
    (loop $again
      (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br $again))
    (i64.const 1)))
