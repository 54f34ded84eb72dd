;; 3000 times memory.fill of 16 MiB.
(module
  (memory (export "memory") 256)
  (func $all (local $i i32) (loop $again
      (memory.fill (i32.const 0) (local.get $i) (i32.const 0x1000000))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $i) (i32.const 3000)))
      (return)
      (br $again)))
  (func (export "handle_request") (result i64)
    (call $all)
    (i64.const 1)))
