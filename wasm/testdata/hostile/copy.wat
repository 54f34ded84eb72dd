;; memory.copy of 15 MiB onto itself, moved by a byte to and fro.
(module
  (memory (export "memory") 256)
  (func (export "handle_request") (result i64)
    (loop $again
      (memory.copy (i32.const 1) (i32.const 0) (i32.const 0xf00000))
      (memory.copy (i32.const 0) (i32.const 1) (i32.const 0xf00000))
      (br $again))
    (i64.const 1)))
