;; table.fill and table.copy of 100,000 entries.
(module
  (memory (export "memory") 256)
  (table $t 100000 funcref)
  (func (export "handle_request") (result i64)
    (loop $again
      (table.fill $t (i32.const 0) (ref.null func) (i32.const 100000))
      (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 99999))
      (br $again))
    (i64.const 1)))
