;; Replaces the request's body without reading it, and uses the new one as its key.
(module
  (import "http_handler" "read_body" (func $read_body (param i32 i32 i32) (result i64)))
  (import "http_handler" "write_body" (func $write_body (param i32 i32 i32)))
  (import "reqlock_v1" "add_key" (func $add_key (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "own body")
  (func (export "handle_request") (result i64)
    (call $write_body (i32.const 0) (i32.const 0) (i32.const 8))
    (call $add_key (i32.const 1024) (i32.wrap_i64 (call $read_body (i32.const 0) (i32.const 1024) (i32.const 64))))
    (i64.const 1)))
