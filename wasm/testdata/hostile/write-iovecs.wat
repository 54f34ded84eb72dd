;; fd_write of a million buffers of 15 MiB, which are all the same.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64) (local $at i32)
    (local.set $at (i32.const 8000000))
    (loop $fill
      (local.set $at (i32.sub (local.get $at) (i32.const 8)))
      (i32.store offset=64 (local.get $at) (i32.const 0))
      (i32.store offset=68 (local.get $at) (i32.const 0xf00000))
      (br_if $fill (local.get $at)))
    (loop $again
      (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1000000) (i32.const 0)))
      (br $again))
    (i64.const 1)))
