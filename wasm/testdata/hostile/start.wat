;; A start section that recurses for hours.
(module
  (memory (export "memory") 256)
  (func $fib (param $n i32) (result i32)
    (if (result i32) (i32.lt_u (local.get $n) (i32.const 2))
      (then (local.get $n))
      (else (i32.add (call $fib (i32.sub (local.get $n) (i32.const 1))) (call $fib (i32.sub (local.get $n) (i32.const 2)))))))
  (func $start (drop (call $fib (i32.const 60))))
  (start $start)
  (func (export "handle_request") (result i64)
    
    (i64.const 1)))
