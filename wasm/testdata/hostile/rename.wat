;; path_rename between two paths of 15 MiB of slashes, for ever.
(module
  (import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (memory.fill (i32.const 0) (i32.const 0x2f) (i32.const 0xf00000))
    (loop $again
      (drop (call $path_rename (i32.const 0) (i32.const 0) (i32.const 0xf00000) (i32.const 0) (i32.const 0) (i32.const 0xf00000)))
      (br $again))
    (i64.const 1)))
