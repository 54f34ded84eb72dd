;; A guest for a version of the ABI that does not exist yet.
(module
  (memory (export "memory") 1)
  (func (export "reqlock_v3") (result i32) (i32.const 0))
  (func (export "handle_request") (result i64) (i64.const 1)))
