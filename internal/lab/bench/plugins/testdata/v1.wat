;; ABI version 1: the key is the header X-Tenant.
(module
  (import "http_handler" "get_header_values" (func $get (param i32 i32 i32 i32 i32) (result i64)))
  (import "reqlock_v1" "add_key" (func $add (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "x-tenant")
  (func (export "handle_request") (result i64)
    (call $add (i32.const 64)
      (i32.sub (i32.wrap_i64 (call $get (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 64) (i32.const 64))) (i32.const 1)))
    (i64.const 1)))
