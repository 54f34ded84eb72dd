;; For http-wasm hosts and ABI version 1: the key is the header X-Tenant, set as the request header x-lock-key.
(module
  (import "http_handler" "get_header_values" (func $get (param i32 i32 i32 i32 i32) (result i64)))
  (import "http_handler" "set_header_value" (func $set (param i32 i32 i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "x-tenant")
  (data (i32.const 16) "x-lock-key")
  (func (export "handle_request") (result i64)
    ;; the length of the value, without its NUL
    (call $set (i32.const 0) (i32.const 16) (i32.const 10) (i32.const 64)
      (i32.sub (i32.wrap_i64 (call $get (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 64) (i32.const 64))) (i32.const 1)))
    (i64.const 1))
  (func (export "handle_response") (param i32 i32)))
