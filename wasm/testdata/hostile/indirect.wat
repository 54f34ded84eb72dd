;; Two functions that call each other through a table, twice each.
(module
  (memory (export "memory") 256)
  (table funcref (elem $a $b))
  (type $t (func (param i32)))
  (func $a (type $t)
    (if (local.get 0) (then
      (call_indirect (type $t) (i32.sub (local.get 0) (i32.const 1)) (i32.const 1))
      (call_indirect (type $t) (i32.sub (local.get 0) (i32.const 1)) (i32.const 1)))))
  (func $b (type $t)
    (if (local.get 0) (then
      (call_indirect (type $t) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0))
      (call_indirect (type $t) (i32.sub (local.get 0) (i32.const 1)) (i32.const 0)))))
  (func (export "handle_request") (result i64)
    (call_indirect (type $t) (i32.const 60) (i32.const 0))
    (i64.const 1)))
