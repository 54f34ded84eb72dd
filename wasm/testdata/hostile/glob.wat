;; A matcher of globs that tries each length of each star, as for a path of 40 characters: exponential.
(module
  (memory (export "memory") 256)
  (func $match (param $stars i32) (param $rest i32) (result i32)
    (if (i32.eqz (local.get $stars)) (then (return (i32.const 0))))
    (if (i32.eqz (local.get $rest)) (then (return (i32.const 0))))
    (i32.or
      (call $match (i32.sub (local.get $stars) (i32.const 1)) (i32.sub (local.get $rest) (i32.const 1)))
      (call $match (local.get $stars) (i32.sub (local.get $rest) (i32.const 1)))))
  (func (export "handle_request") (result i64)
    (drop (call $match (i32.const 20) (i32.const 40)))
    (i64.const 1)))
