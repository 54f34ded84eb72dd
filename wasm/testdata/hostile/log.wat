;; A line of 15 MiB in the log, for ever.
(module
  (import "http_handler" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (call $log (i32.const 1) (i32.const 0) (i32.const 0xf00000))
      (br $again))
    (i64.const 1)))
