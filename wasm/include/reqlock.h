/* The imports of a reqlock plugin, version 1 of the ABI. See wasm/ABI.md.
 *
 * A plugin exports its memory and handle_request:
 *
 *     REQLOCK_EXPORT("handle_request") int64_t handle_request(void) { ... return 1; }
 *
 * Build it with clang and lld:
 *
 *     clang --target=wasm32 -O2 -nostdlib -fno-builtin -I wasm/include -Wl,--no-entry -Wl,--strip-all -o plugin.wasm plugin.c
 *
 * Getters write a value only if it fits. They return its length in any case.
 */
#ifndef REQLOCK_H
#define REQLOCK_H

#include <stdint.h>

#define REQLOCK_EXPORT(name) __attribute__((export_name(name)))
#define REQLOCK_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))

enum { REQLOCK_DEBUG = -1, REQLOCK_INFO = 0, REQLOCK_WARN = 1, REQLOCK_ERROR = 2 };

enum {
	REQLOCK_EXCLUSIVE = 0,  /* one request at a time */
	REQLOCK_FAIR = 1,       /* the same, first come first served */
	REQLOCK_FENCED = 2,     /* exclusive, with a fencing token */
	REQLOCK_READ = 3,       /* shared with other readers */
	REQLOCK_WRITE = 4,      /* excludes readers and writers */
	REQLOCK_READ_WRITE = 5, /* READ for GET and HEAD, WRITE for the rest */
};

/* The kinds of headers and bodies. */
enum { REQLOCK_REQUEST = 0, REQLOCK_REQUEST_TRAILERS = 2 };

/* The request: the http_handler ABI of http-wasm. */
REQLOCK_IMPORT("http_handler", "get_config") uint32_t reqlock_get_config(void *buf, uint32_t limit);
REQLOCK_IMPORT("http_handler", "log_enabled") uint32_t reqlock_log_enabled(int32_t level);
REQLOCK_IMPORT("http_handler", "log") void reqlock_log(int32_t level, const char *text, uint32_t len);
REQLOCK_IMPORT("http_handler", "get_method") uint32_t reqlock_get_method(void *buf, uint32_t limit);
REQLOCK_IMPORT("http_handler", "get_uri") uint32_t reqlock_get_uri(void *buf, uint32_t limit);
REQLOCK_IMPORT("http_handler", "get_protocol_version") uint32_t reqlock_get_protocol_version(void *buf, uint32_t limit);
REQLOCK_IMPORT("http_handler", "get_source_addr") uint32_t reqlock_get_source_addr(void *buf, uint32_t limit);

/* Lists: each value ends with NUL; the result is count<<32 | length, NULs included. Names are in lower case. */
REQLOCK_IMPORT("http_handler", "get_header_names") uint64_t reqlock_get_header_names(int32_t kind, void *buf, uint32_t limit);
REQLOCK_IMPORT("http_handler", "get_header_values") uint64_t reqlock_get_header_values(int32_t kind, const char *name, uint32_t name_len, void *buf, uint32_t limit);

/* The next part of the body; the result is end<<32 | length. limit must not be 0. If a plugin imports it, the host reads the
 * body of every request before it calls the plugin. */
REQLOCK_IMPORT("http_handler", "read_body") uint64_t reqlock_read_body(int32_t kind, void *buf, uint32_t limit);

/* The decision: reqlock's own module. Add at least one key, or call skip or deny. Values that are not set are those of the
 * host's Config. */
REQLOCK_IMPORT("reqlock_v1", "add_key") void reqlock_add_key(const void *key, uint32_t len);
REQLOCK_IMPORT("reqlock_v1", "set_wait_ms") void reqlock_set_wait_ms(int64_t ms);
REQLOCK_IMPORT("reqlock_v1", "set_lease_ms") void reqlock_set_lease_ms(int64_t ms);
REQLOCK_IMPORT("reqlock_v1", "set_mode") void reqlock_set_mode(int32_t mode);
REQLOCK_IMPORT("reqlock_v1", "set_fenced") void reqlock_set_fenced(void); /* a fencing token; needs a single key, and readers get none */
REQLOCK_IMPORT("reqlock_v1", "set_limit") void reqlock_set_limit(int32_t n); /* so many requests with a key at a time, 2 or more; not with a mode or a token */
REQLOCK_IMPORT("reqlock_v1", "skip") void reqlock_skip(void);
REQLOCK_IMPORT("reqlock_v1", "deny") void reqlock_deny(int32_t status, const char *text, uint32_t len);

#endif
