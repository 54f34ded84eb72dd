;; Grows a table, which the memory limit would not cover.
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "handle_request") (result i64)
    (drop (table.grow 0 (ref.null func) (i32.const 1000000)))
    (i64.const 1)))
