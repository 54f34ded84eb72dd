;; table.grow by one, until it fails and after.
(module
  (memory (export "memory") 256)
  (table $t 1 funcref)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (table.grow $t (ref.null func) (i32.const 1)))
      (br $again))
    (i64.const 1)))
