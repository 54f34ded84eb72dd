;; Endless recursion.
(module
  (memory (export "memory") 256)
  (func $f (call $f))
  (func (export "handle_request") (result i64)
    (call $f)
    (i64.const 1)))
