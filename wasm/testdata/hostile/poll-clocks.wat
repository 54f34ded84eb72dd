;; poll_oneoff of 1024 clocks, for ever.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (call $poll_oneoff (i32.const 64) (i32.const 0x100000) (i32.const 1024) (i32.const 0)))
      (br $again))
    (i64.const 1)))
