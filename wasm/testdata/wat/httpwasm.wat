;; Uses all of http-wasm and nothing else. Its key is what it reads back from its scratch copy. The path selects what else it does.
(module
  (import "http_handler" "enable_features" (func $enable_features (param i32) (result i32)))
  (import "http_handler" "get_config" (func $get_config (param i32 i32) (result i32)))
  (import "http_handler" "log_enabled" (func $log_enabled (param i32) (result i32)))
  (import "http_handler" "log" (func $log (param i32 i32 i32)))
  (import "http_handler" "get_method" (func $get_method (param i32 i32) (result i32)))
  (import "http_handler" "set_method" (func $set_method (param i32 i32)))
  (import "http_handler" "get_uri" (func $get_uri (param i32 i32) (result i32)))
  (import "http_handler" "set_uri" (func $set_uri (param i32 i32)))
  (import "http_handler" "get_protocol_version" (func $get_protocol_version (param i32 i32) (result i32)))
  (import "http_handler" "get_source_addr" (func $get_source_addr (param i32 i32) (result i32)))
  (import "http_handler" "get_header_names" (func $get_header_names (param i32 i32 i32) (result i64)))
  (import "http_handler" "get_header_values" (func $get_header_values (param i32 i32 i32 i32 i32) (result i64)))
  (import "http_handler" "set_header_value" (func $set_header_value (param i32 i32 i32 i32 i32)))
  (import "http_handler" "add_header_value" (func $add_header_value (param i32 i32 i32 i32 i32)))
  (import "http_handler" "remove_header" (func $remove_header (param i32 i32 i32)))
  (import "http_handler" "read_body" (func $read_body (param i32 i32 i32) (result i64)))
  (import "http_handler" "write_body" (func $write_body (param i32 i32 i32)))
  (import "http_handler" "get_status_code" (func $get_status_code (result i32)))
  (import "http_handler" "set_status_code" (func $set_status_code (param i32)))

  ;; 0 constants; 256 the URI; 1024 values read; 8192 the key as it grows
  (memory (export "memory") 1)
  (data (i32.const 0) "x-lock-key")
  (data (i32.const 16) "host")
  (data (i32.const 32) "POST")
  (data (i32.const 40) "/rewritten")
  (data (i32.const 64) "new body")
  (data (i32.const 80) "x-trailer")
  (data (i32.const 96) "x-own")
  (global $end (mut i32) (i32.const 8192))

  ;; part appends the value at 1024 and a "|" to the key.
  (func $part (param $len i32)
    (memory.copy (global.get $end) (i32.const 1024) (local.get $len))
    (global.set $end (i32.add (global.get $end) (local.get $len)))
    (i32.store8 (global.get $end) (i32.const 124))
    (global.set $end (i32.add (global.get $end) (i32.const 1))))

  ;; number appends one digit.
  (func $number (param $n i32)
    (i32.store8 (i32.const 1024) (i32.add (i32.const 48) (local.get $n)))
    (call $part (i32.const 1)))

  (func (export "handle_request") (result i64) (local $c i32)
    (global.set $end (i32.const 8192))
    (drop (call $get_uri (i32.const 256) (i32.const 512)))
    (local.set $c (i32.load8_u (i32.const 257))) ;; the character after the slash
    (if (i32.eq (local.get $c) (i32.const 110)) (then (return (i64.const 1)))) ;; n: no key
    (if (i32.eq (local.get $c) (i32.const 99)) ;; c: the client's own key header
      (then
        (call $part (i32.wrap_i64 (call $get_header_values (i32.const 0) (i32.const 0) (i32.const 10) (i32.const 1024) (i32.const 1024))))
        (call $part (i32.wrap_i64 (call $get_header_names (i32.const 0) (i32.const 1024) (i32.const 1024))))
        (call $add_header_value (i32.const 0) (i32.const 0) (i32.const 10) (i32.const 8192) (i32.sub (global.get $end) (i32.const 8192)))
        (return (i64.const 1))))
    (if (i32.eq (local.get $c) (i32.const 100)) ;; d: answers with 451
      (then
        (call $set_status_code (i32.const 451))
        (call $write_body (i32.const 1) (i32.const 64) (i32.const 8))
        (return (i64.const 0))))
    (if (i32.eq (local.get $c) (i32.const 111)) (then (return (i64.const 0)))) ;; o: the same, with 200
    (if (i32.eq (local.get $c) (i32.const 104)) ;; h: writes too much
      (then (loop $again
        (call $add_header_value (i32.const 1) (i32.const 96) (i32.const 5) (i32.const 0) (i32.const 60000))
        (br $again))))
    (if (i32.eq (local.get $c) (i32.const 107)) ;; k: an unknown kind of headers
      (then (drop (call $get_header_names (i32.const 4) (i32.const 1024) (i32.const 1024)))))
    (if (i32.eq (local.get $c) (i32.const 98)) ;; b: an unknown kind of body
      (then (drop (call $read_body (i32.const 2) (i32.const 1024) (i32.const 1024)))))
    (if (i32.eq (local.get $c) (i32.const 109)) ;; m: two keys
      (then
        (call $set_header_value (i32.const 0) (i32.const 0) (i32.const 10) (i32.const 32) (i32.const 4))
        (call $add_header_value (i32.const 0) (i32.const 0) (i32.const 10) (i32.const 16) (i32.const 4))
        (return (i64.const 1))))

    ;; the original request
    (call $number (call $enable_features (i32.const 7)))
    (call $part (call $get_config (i32.const 1024) (i32.const 1024)))
    (call $number (call $log_enabled (i32.const 3)))
    (call $part (call $get_method (i32.const 1024) (i32.const 1024)))
    (call $part (call $get_uri (i32.const 1024) (i32.const 1024)))
    (call $part (call $get_protocol_version (i32.const 1024) (i32.const 1024)))
    (call $part (call $get_source_addr (i32.const 1024) (i32.const 1024)))
    (call $part (i32.wrap_i64 (call $get_header_names (i32.const 0) (i32.const 1024) (i32.const 1024))))
    (call $part (i32.wrap_i64 (call $get_header_values (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 1024) (i32.const 1024))))
    (call $part (i32.wrap_i64 (call $read_body (i32.const 0) (i32.const 1024) (i32.const 4))))
    (call $part (i32.wrap_i64 (call $read_body (i32.const 0) (i32.const 1024) (i32.const 1024))))
    (call $number (i32.wrap_i64 (i64.shr_u (call $read_body (i32.const 0) (i32.const 1024) (i32.const 1024)) (i64.const 32))))
    (call $part (i32.wrap_i64 (call $get_header_values (i32.const 2) (i32.const 80) (i32.const 9) (i32.const 1024) (i32.const 1024))))

    ;; changes can be read back
    (call $set_method (i32.const 32) (i32.const 4))
    (call $part (call $get_method (i32.const 1024) (i32.const 1024)))
    (call $set_uri (i32.const 40) (i32.const 10))
    (call $part (call $get_uri (i32.const 1024) (i32.const 1024)))
    (call $set_header_value (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 32) (i32.const 4))
    (call $add_header_value (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 40) (i32.const 10))
    (call $part (i32.wrap_i64 (call $get_header_values (i32.const 0) (i32.const 16) (i32.const 4) (i32.const 1024) (i32.const 1024))))
    (call $remove_header (i32.const 0) (i32.const 16) (i32.const 4))
    (call $part (i32.wrap_i64 (call $get_header_names (i32.const 0) (i32.const 1024) (i32.const 1024))))
    (call $write_body (i32.const 0) (i32.const 64) (i32.const 4))
    (call $write_body (i32.const 0) (i32.const 68) (i32.const 4))
    (call $part (i32.wrap_i64 (call $read_body (i32.const 0) (i32.const 1024) (i32.const 1024))))
    (call $set_header_value (i32.const 1) (i32.const 96) (i32.const 5) (i32.const 32) (i32.const 4))
    (call $part (i32.wrap_i64 (call $get_header_values (i32.const 1) (i32.const 96) (i32.const 5) (i32.const 1024) (i32.const 1024))))
    (call $number (i32.eq (call $get_status_code) (i32.const 200)))
    (call $set_header_value (i32.const 0) (i32.const 0) (i32.const 10) (i32.const 8192) (i32.sub (global.get $end) (i32.const 8192)))
    (call $log (i32.const 0) (i32.const 64) (i32.const 8))
    (i64.const 1))

  ;; full middleware exports this; a host that only locks never calls it
  (func (export "handle_response") (param i32 i32) unreachable))
