;; Its _initialize has a parameter.
(module
  (memory (export "memory") 1)
  (func (export "_initialize") (param i32))
  (func (export "handle_request") (result i64) (i64.const 1)))
