;; Its handle_request has a wrong signature.
(module
  (memory (export "memory") 1)
  (func (export "handle_request") (param i32) (result i32) (i32.const 1)))
