;; The values of a header whose name has 15 MiB.
(module
  (import "http_handler" "get_header_values" (func $values (param i32 i32 i32 i32 i32) (result i64)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (memory.fill (i32.const 0) (i32.const 97) (i32.const 0xf00000))
    (loop $again
      (drop (call $values (i32.const 0) (i32.const 0) (i32.const 0xf00000) (i32.const 0) (i32.const 0)))
      (br $again))
    (i64.const 1)))
