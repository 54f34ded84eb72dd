;; memory.grow by a page, until it fails and after.
(module
  (memory (export "memory") 1)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (memory.grow (i32.const 1)))
      (br $again))
    (i64.const 1)))
