;; Recurses forever in its start section.
(module
  (memory (export "memory") 1)
  (func $again (call $again))
  (start $again)
  (func (export "handle_request") (result i64) (i64.const 1)))
