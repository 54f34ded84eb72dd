;; The test guest by hand; ../README.md describes its policy.
(module
  (import "http_handler" "get_config" (func $get_config (param i32 i32) (result i32)))
  (import "http_handler" "log" (func $log (param i32 i32 i32)))
  (import "http_handler" "get_method" (func $get_method (param i32 i32) (result i32)))
  (import "http_handler" "get_uri" (func $get_uri (param i32 i32) (result i32)))
  (import "http_handler" "get_header_values" (func $get_header_values (param i32 i32 i32 i32 i32) (result i64)))
  (import "http_handler" "read_body" (func $read_body (param i32 i32 i32) (result i64)))
  (import "reqlock_v1" "add_key" (func $add_key (param i32 i32)))
  (import "reqlock_v1" "set_wait_ms" (func $set_wait_ms (param i64)))
  (import "reqlock_v1" "set_lease_ms" (func $set_lease_ms (param i64)))
  (import "reqlock_v1" "set_mode" (func $set_mode (param i32)))
  (import "reqlock_v1" "skip" (func $skip))
  (import "reqlock_v1" "deny" (func $deny (param i32 i32 i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))

  ;; 0 constants; 256 fault; 512 method; 640 body; 1024 key: the tenant, ":" in place of its NUL, and the URI; 16384 filler
  (memory (export "memory") 1)
  (data (i32.const 0) "x-fault")
  (data (i32.const 16) "x-tenant")
  (data (i32.const 32) "/health")
  (data (i32.const 48) "GET")
  (data (i32.const 56) "HEAD")
  (data (i32.const 64) "PUT")
  (data (i32.const 72) "\ff\fe")
  (data (i32.const 80) "the URI is too long")
  (data (i32.const 112) "X-Tenant is missing")
  (data (i32.const 144) "all is well")

  (func $equal (param $a i32) (param $a_len i32) (param $b i32) (param $b_len i32) (result i32)
    (if (i32.ne (local.get $a_len) (local.get $b_len)) (then (return (i32.const 0))))
    (block $end
      (loop $next
        (br_if $end (i32.eqz (local.get $a_len)))
        (if (i32.ne (i32.load8_u (local.get $a)) (i32.load8_u (local.get $b))) (then (return (i32.const 0))))
        (local.set $a (i32.add (local.get $a) (i32.const 1)))
        (local.set $b (i32.add (local.get $b) (i32.const 1)))
        (local.set $a_len (i32.sub (local.get $a_len) (i32.const 1)))
        (br $next)))
    (i32.const 1))

  (func $forever (loop $again (br $again)))

  (func $recurse (param i32) (result i32)
    (i32.add (call $recurse (i32.add (local.get 0) (i32.const 1))) (local.get 0)))

  ;; start: obey the settings
  (func $start
    (memory.fill (i32.const 16384) (i32.const 107) (i32.const 5000))
    (if (call $get_config (i32.const 1024) (i32.const 1024))
      (then
        (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 108))
          (then (call $log (i32.const 0) (i32.const 16384) (i32.const 7)) (call $forever)))
        (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 116)) (then unreachable)))))
  (start $start)

  ;; fault triggers a fault, and reports whether the request ends with it.
  (func $fault (param $code i32) (result i32) (local $i i32)
    (if (i32.eq (local.get $code) (i32.const 116)) (then unreachable)) ;; t
    (if (i32.eq (local.get $code) (i32.const 111)) (then (drop (i32.load (i32.const 0xfffffff0))))) ;; o
    (if (i32.eq (local.get $code) (i32.const 122)) (then (drop (i32.div_s (i32.const 1) (local.get $i))))) ;; z
    (if (i32.eq (local.get $code) (i32.const 108)) (then (call $forever))) ;; l
    (if (i32.eq (local.get $code) (i32.const 114)) (then (drop (call $recurse (i32.const 1))))) ;; r
    (if (i32.eq (local.get $code) (i32.const 109)) ;; m
      (then
        (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
        unreachable))
    (if (i32.eq (local.get $code) (i32.const 102)) ;; f
      (then
        (loop $more
          (call $log (i32.const 0) (i32.const 16384) (i32.const 2000))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 2000))))
        (return (i32.const 0))))
    (if (i32.eq (local.get $code) (i32.const 120)) (then (call $proc_exit (i32.const 3)))) ;; x
    (if (i32.eq (local.get $code) (i32.const 112)) (then (call $add_key (i32.const 0xfffffff0) (i32.const 100)))) ;; p
    (if (i32.eq (local.get $code) (i32.const 103)) (then (drop (call $get_uri (i32.const 0xfffffff0) (i32.const 0x40000000))))) ;; g
    (if (i32.eq (local.get $code) (i32.const 98)) (then (drop (call $read_body (i32.const 0) (i32.const 640) (i32.const 0))))) ;; b
    (if (i32.eq (local.get $code) (i32.const 107)) (then (call $add_key (i32.const 16384) (i32.const 5000)))) ;; k
    (if (i32.eq (local.get $code) (i32.const 117)) (then (call $add_key (i32.const 72) (i32.const 2)))) ;; u
    (if (i32.eq (local.get $code) (i32.const 101)) (then (call $add_key (i32.const 0) (i32.const 0)))) ;; e
    (if (i32.eq (local.get $code) (i32.const 119)) (then (call $set_wait_ms (i64.const -1)))) ;; w
    (if (i32.eq (local.get $code) (i32.const 87)) (then (call $set_wait_ms (i64.const 0x4000000000000000)))) ;; W
    (if (i32.eq (local.get $code) (i32.const 100)) (then (call $set_lease_ms (i64.const -1)))) ;; d
    (if (i32.eq (local.get $code) (i32.const 68)) (then (call $set_lease_ms (i64.const 0x4000000000000000)))) ;; D
    (if (i32.eq (local.get $code) (i32.const 113)) (then (call $set_mode (i32.const 77)))) ;; q
    (if (i32.eq (local.get $code) (i32.const 115)) (then (call $deny (i32.const 200) (i32.const 144) (i32.const 11)))) ;; s
    (if (i32.eq (local.get $code) (i32.const 99)) ;; c
      (then
        (loop $more
          (call $add_key (i32.const 0) (i32.const 3))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $more (i32.lt_u (local.get $i) (i32.const 17))))))
    (i32.const 1))

  (func (export "handle_request") (result i64)
    (local $values i64) (local $uri i32) (local $uri_len i32) (local $path_len i32) (local $method_len i32) (local $body_len i32)
    (local.set $values (call $get_header_values (i32.const 0) (i32.const 0) (i32.const 7) (i32.const 256) (i32.const 2)))
    (if (i64.eq (local.get $values) (i64.const 0x100000002))
      (then (if (call $fault (i32.load8_u (i32.const 256))) (then (return (i64.const 1))))))

    ;; the tenant, at 1024, decides where the URI goes
    (local.set $values (call $get_header_values (i32.const 0) (i32.const 16) (i32.const 8) (i32.const 1024) (i32.const 65)))
    (local.set $uri (i32.const 1089))
    (if (i32.and
          (i64.eq (i64.shr_u (local.get $values) (i64.const 32)) (i64.const 1))
          (i32.lt_u (i32.sub (i32.wrap_i64 (local.get $values)) (i32.const 2)) (i32.const 64)))
      (then (local.set $uri (i32.add (i32.const 1024) (i32.wrap_i64 (local.get $values)))))
      (else (local.set $values (i64.const 0))))

    (local.set $uri_len (call $get_uri (local.get $uri) (i32.const 1024)))
    (if (i32.gt_u (local.get $uri_len) (i32.const 1024))
      (then (call $deny (i32.const 414) (i32.const 80) (i32.const 19)) (return (i64.const 1))))
    (block $end
      (loop $next
        (br_if $end (i32.eq (local.get $path_len) (local.get $uri_len)))
        (br_if $end (i32.eq (i32.load8_u (i32.add (local.get $uri) (local.get $path_len))) (i32.const 63)))
        (local.set $path_len (i32.add (local.get $path_len) (i32.const 1)))
        (br $next)))
    (if (call $equal (local.get $uri) (local.get $path_len) (i32.const 32) (i32.const 7))
      (then (call $skip) (return (i64.const 1))))
    (if (i64.eqz (local.get $values))
      (then (call $deny (i32.const 400) (i32.const 112) (i32.const 19)) (return (i64.const 1))))
    (i32.store8 (i32.sub (local.get $uri) (i32.const 1)) (i32.const 58))
    (call $add_key (i32.const 1024) (i32.add (i32.wrap_i64 (local.get $values)) (local.get $path_len)))

    (local.set $method_len (call $get_method (i32.const 512) (i32.const 16)))
    (if (i32.or
          (call $equal (i32.const 512) (local.get $method_len) (i32.const 48) (i32.const 3))
          (call $equal (i32.const 512) (local.get $method_len) (i32.const 56) (i32.const 4)))
      (then
        (call $set_mode (i32.const 3))
        (call $set_wait_ms (i64.const 1000))
        (return (i64.const 1))))
    (call $set_mode (i32.const 4))
    (call $set_wait_ms (i64.const 250))
    (call $set_lease_ms (i64.const 5000))
    (if (call $equal (i32.const 512) (local.get $method_len) (i32.const 64) (i32.const 3))
      (then
        (local.set $body_len (i32.wrap_i64 (call $read_body (i32.const 0) (i32.const 640) (i32.const 64))))
        (if (local.get $body_len) (then (call $add_key (i32.const 640) (local.get $body_len))))))
    (i64.const 1)))
