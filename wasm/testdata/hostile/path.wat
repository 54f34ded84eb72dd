;; path_open of a path of 15 MiB, for ever.
(module
  (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0xf00000) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 0)))
      (br $again))
    (i64.const 1)))
