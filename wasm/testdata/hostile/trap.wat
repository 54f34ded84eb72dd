;; A trap in each call, so that each needs a new instance.
(module
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (unreachable)
    (i64.const 1)))
