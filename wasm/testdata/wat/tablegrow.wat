;; Grows a table, which the memory limit would not cover: that fails beyond the host's limit.
(module
  (import "reqlock_v1" "skip" (func $skip))
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "handle_request") (result i64)
    (if (i32.ne (table.grow 0 (ref.null func) (i32.const 1000)) (i32.const 1)) (then (unreachable)))
    (if (i32.ne (table.grow 0 (ref.null func) (i32.const 1000000)) (i32.const -1)) (then (unreachable)))
    (call $skip)
    (i64.const 1)))
