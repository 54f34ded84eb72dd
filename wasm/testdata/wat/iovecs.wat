;; Passes WASI half a million pointers to the same 4 MiB, to write in one call.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 129)
  (func (export "handle_request") (result i64) (local $i i32)
    (memory.fill (i32.const 4194304) (i32.const 10) (i32.const 4194304)) ;; empty lines
    (loop $next
      (i32.store (local.get $i) (i32.const 4194304))
      (i32.store offset=4 (local.get $i) (i32.const 4194304))
      (local.set $i (i32.add (local.get $i) (i32.const 8)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 4000000))))
    (loop $again
      (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 500000) (i32.const 8388608)))
      (br $again))
    (i64.const 1)))
