;; A guest that mixes two versions of the ABI.
(module
  (import "reqlock_v1" "skip" (func))
  (memory (export "memory") 1)
  (func (export "reqlock_v2") (result i32) (i32.const 0))
  (func (export "handle_request") (result i64) (i64.const 1)))
