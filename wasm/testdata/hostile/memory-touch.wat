;; memory.grow by a page, with a fill of all of it each time.
(module
  (memory (export "memory") 1)
  (func (export "handle_request") (result i64)
    (loop $again
      (drop (memory.grow (i32.const 1)))
      (memory.fill (i32.const 0) (i32.const 1) (i32.shl (memory.size) (i32.const 16)))
      (br $again))
    (i64.const 1)))
