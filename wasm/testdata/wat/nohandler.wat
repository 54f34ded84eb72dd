;; Exports no handle_request.
(module
  (memory (export "memory") 1))
