;; A guest of ABI version 2 whose declaration wants a part that does not exist.
(module
  (memory (export "memory") 1)
  (data (i32.const 0) "\00\01\00\00" "\00\00\00\00" "\00\00\00\00" "\00\04\00\00" "\00\04\00\00")
  (func (export "reqlock_v2") (result i32) (i32.const 0))
  (func (export "handle_request") (result i64) (i64.const 1)))
