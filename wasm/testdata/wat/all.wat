;; Calls every function of reqlock_v1, selected by the first letter of the method.
(module
  (import "http_handler" "get_method" (func $get_method (param i32 i32) (result i32)))
  (import "reqlock_v1" "add_key" (func $add_key (param i32 i32)))
  (import "reqlock_v1" "set_wait_ms" (func $set_wait_ms (param i64)))
  (import "reqlock_v1" "set_lease_ms" (func $set_lease_ms (param i64)))
  (import "reqlock_v1" "set_mode" (func $set_mode (param i32)))
  (import "reqlock_v1" "set_fenced" (func $set_fenced))
  (import "reqlock_v1" "set_limit" (func $set_limit (param i32)))
  (import "reqlock_v1" "skip" (func $skip))
  (import "reqlock_v1" "deny" (func $deny (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "no\nway \ff\c3\bc ")
  (func (export "handle_request") (result i64)
    (drop (call $get_method (i32.const 0) (i32.const 8)))
    (call $set_wait_ms (i64.const 0))
    (call $set_lease_ms (i64.const 0))
    (if (i32.lt_u (i32.load8_u (i32.const 0)) (i32.const 56)) ;; a digit: the mode
      (then (call $set_mode (i32.sub (i32.load8_u (i32.const 0)) (i32.const 48)))))
    (call $add_key (i32.const 0) (i32.const 1))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 70)) (then (call $set_fenced))) ;; F
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 76)) (then (call $set_limit (i32.const 2)))) ;; L
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 79)) (then (call $set_limit (i32.const 1)))) ;; O
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 78)) (then (call $set_limit (i32.const -1)))) ;; N
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 83)) (then (call $skip))) ;; S
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 68)) ;; D
      (then (call $skip) (call $deny (i32.const 422) (i32.const 16) (i32.const 2000))))
    (i64.const 1)))
