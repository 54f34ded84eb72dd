;; The cheapest useful guest of ABI version 2: its only key is the header X-Tenant, where the host wrote it.
(module
  (memory (export "memory") 1)
  ;; 0 declaration: no fields, one header name at 32, a buffer of 2048 bytes at 1024
  (data (i32.const 0) "\00\00\00\00" "\20\00\00\00" "\09\00\00\00" "\00\04\00\00" "\00\08\00\00")
  (data (i32.const 32) "x-tenant\00")
  ;; 64 record: lock, with mode, wait and lease of the guard; one entry at 100, a key
  (data (i32.const 64) "\00\00\00\00" "\ff\ff\ff\ff" "\ff\ff\ff\ff\ff\ff\ff\ff" "\ff\ff\ff\ff\ff\ff\ff\ff" "\00\00\00\00" "\00\00\00\00" "\01\00\00\00" "\01\00\00\00")
  (func (export "reqlock_v2") (result i32) (i32.const 0))
  (func (export "handle_request") (result i64)
    ;; the header's address and length are behind the six fields of the request
    (i64.store (i32.const 104) (i64.load (i32.const 1072)))
    (i64.const 64)))
