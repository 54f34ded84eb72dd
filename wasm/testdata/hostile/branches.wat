;; A loop around a br_table, as Go compiles functions.
(module
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (local $i i32)
    (loop $again
      (block $c (block $b (block $a
        (br_table $a $b $c (i32.rem_u (local.get $i) (i32.const 3))))
        (local.set $i (i32.add (local.get $i) (i32.const 1))) (br $again))
        (local.set $i (i32.add (local.get $i) (i32.const 4))) (br $again))
      (local.set $i (i32.add (local.get $i) (i32.const 7)))
      (br $again))
    (i64.const 1)))
