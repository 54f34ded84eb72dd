;; Its key is always "key-a". The tests change the letter to make other versions.
(module
  (import "reqlock_v1" "add_key" (func $add_key (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "key-a")
  (func (export "handle_request") (result i64)
    (call $add_key (i32.const 0) (i32.const 5))
    (i64.const 1)))
