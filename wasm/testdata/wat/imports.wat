;; Imports what the host does not have, or has with another signature.
(module
  (import "http_handler" "set_key" (func (param i32 i32)))
  (import "reqlock_v1" "skip" (func (param i32)))
  (import "reqlock_v2" "add_key" (func (param i32 i32)))
  (import "wasi_snapshot_preview1" "sock_open" (func (param i32 i32 i32) (result i32)))
  (import "env" "memory" (memory 1))
  (export "memory" (memory 0))
  (func (export "handle_request") (result i64) (i64.const 1)))
