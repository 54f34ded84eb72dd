;; Imports a global.
(module
  (import "env" "base" (global i32))
  (memory (export "memory") 1)
  (func (export "handle_request") (result i64) (i64.const 1)))
