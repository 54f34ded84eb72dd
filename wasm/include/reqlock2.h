/* A reqlock plugin, version 2 of the ABI: the host writes what the plugin wants to know about each request into its memory, and
 * reads a record of its decision there. See wasm/ABI.md.
 *
 *     #include "reqlock2.h"
 *
 *     REQLOCK_PLUGIN(REQLOCK_METHOD, "x-tenant", 4096)
 *
 *     REQLOCK_EXPORT("handle_request") int64_t handle_request(void) {
 *             reqlock_header tenant = reqlock_request->headers[0];
 *             reqlock_begin(REQLOCK_LOCK);
 *             reqlock_add(REQLOCK_KEY, tenant.ptr, tenant.len);
 *             return reqlock_end();
 *     }
 *
 * Build it with clang and lld:
 *
 *     clang --target=wasm32 -O2 -nostdlib -fno-builtin -I wasm/include -Wl,--no-entry -Wl,--strip-all -o plugin.wasm plugin.c
 */
#ifndef REQLOCK2_H
#define REQLOCK2_H

#include "reqlock.h" /* modes, levels, and the getters of http_handler; not the functions of reqlock_v1 */

/* The parts of a request, beside its headers. */
enum { REQLOCK_METHOD = 1, REQLOCK_URI = 2, REQLOCK_SOURCE_ADDR = 4, REQLOCK_PROTOCOL = 8, REQLOCK_HOST = 16, REQLOCK_BODY = 32 };

/* A text that the plugin did not ask for is 0, 0. One that does not fit into the buffer has ptr 0 and its length. */
typedef struct {
	const char *ptr;
	uint32_t len;
} reqlock_text;

/* Several values have NUL between them. */
typedef struct {
	const char *ptr;
	uint32_t len, count;
} reqlock_header;

/* The len of a body that is too large or that the client did not finish: answer with REQLOCK_NEEDS_BODY if you need it. */
#define REQLOCK_MISSING 0xffffffffu

typedef struct {
	reqlock_text method, uri, source_addr, protocol, host, body;
	reqlock_header headers[]; /* in the order in which they were declared */
} reqlock_request_t;

/* What to do with the request. */
enum { REQLOCK_LOCK = 0, REQLOCK_SKIP = 1, REQLOCK_DENY = 2, REQLOCK_NEEDS_BODY = 3 };

/* The kinds of entries. */
enum {
	REQLOCK_KEY = 1,     /* of a lock */
	REQLOCK_DETAIL = 2,  /* of a refusal, as are the next three: the problem's detail */
	REQLOCK_TITLE = 3,   /* the problem's title */
	REQLOCK_PROBLEM = 4, /* the end of the problem's type */
	REQLOCK_REASON = 5,  /* the header Reqlock-Reason */
	REQLOCK_FIELD = 6,   /* name=value, for logs */
	REQLOCK_TOKEN = 7,   /* of a lock, without a text: its holder gets a fencing token; needs a single key, and readers get none */
	REQLOCK_LIMIT = 8,   /* of a lock, an int32_t: so many requests with a key at a time, 2 or more; not with a mode or a token */
};

typedef struct {
	uint32_t action;
	int32_t mode;              /* -1: the guard's */
	int64_t wait_ms, lease_ms; /* -1: the guard's */
	uint32_t status, retry_after;
	uint32_t count;
	struct {
		uint32_t kind;
		const void *ptr;
		uint32_t len;
	} entries[64];
} reqlock_record_t;

typedef struct {
	uint32_t wants;
	const char *names;
	uint32_t names_len;
	void *buffer;
	uint32_t buffer_len;
} reqlock_declaration_t;

/* REQLOCK_PLUGIN declares the parts and headers that the plugin wants, and a buffer for them. The names of the headers have "\0"
 * between them; "" is none. */
#define REQLOCK_PLUGIN(parts, header_names, buffer_size)                                                                            \
	static union {                                                                                                              \
		reqlock_request_t request;                                                                                          \
		char bytes[buffer_size];                                                                                            \
	} reqlock_buffer;                                                                                                           \
	static const reqlock_request_t *const reqlock_request = &reqlock_buffer.request;                                           \
	REQLOCK_EXPORT("reqlock_v2") const reqlock_declaration_t *reqlock_declare(void) {                                           \
		static const reqlock_declaration_t declaration = {                                                                  \
		    parts, header_names, sizeof(header_names) > 1 ? sizeof(header_names) : 0, &reqlock_buffer, sizeof(reqlock_buffer)}; \
		return &declaration;                                                                                                \
	}

static reqlock_record_t reqlock_record;

/* reqlock_begin begins a decision, with the mode and times of the guard. */
static inline void reqlock_begin(uint32_t action) {
	reqlock_record.action = action;
	reqlock_record.mode = -1;
	reqlock_record.wait_ms = reqlock_record.lease_ms = -1;
	reqlock_record.status = reqlock_record.retry_after = reqlock_record.count = 0;
}

/* reqlock_add adds an entry. The text must stay until handle_request has returned. */
static inline void reqlock_add(uint32_t kind, const void *text, uint32_t len) {
	uint32_t n = reqlock_record.count++;
	if (n < sizeof reqlock_record.entries / sizeof *reqlock_record.entries) { /* the host refuses a record with more */
		reqlock_record.entries[n].kind = kind;
		reqlock_record.entries[n].ptr = text;
		reqlock_record.entries[n].len = len;
	}
}

/* reqlock_end returns what handle_request returns. */
static inline int64_t reqlock_end(void) { return (int64_t)(uint32_t)&reqlock_record; }

/* reqlock_refuse is a whole refusal. */
static inline int64_t reqlock_refuse(uint32_t status, const char *detail, uint32_t len) {
	reqlock_begin(REQLOCK_DENY);
	reqlock_record.status = status;
	reqlock_add(REQLOCK_DETAIL, detail, len);
	return reqlock_end();
}

/* The memory that all instances of the plugin share. Keys have 1 to 256 bytes; entries live from 1 ms to a day. */
REQLOCK_IMPORT("reqlock_v2", "kv_get") int64_t reqlock_kv_get(const void *key, uint32_t key_len, void *buf, uint32_t limit); /* -1: none */
REQLOCK_IMPORT("reqlock_v2", "kv_set") int32_t reqlock_kv_set(const void *key, uint32_t key_len, const void *value, uint32_t len, int64_t ttl_ms); /* 0: full */
REQLOCK_IMPORT("reqlock_v2", "kv_incr") int64_t reqlock_kv_incr(const void *key, uint32_t key_len, int64_t delta, int64_t ttl_ms); /* INT64_MIN: full, or not a counter */
REQLOCK_IMPORT("reqlock_v2", "kv_delete") void reqlock_kv_delete(const void *key, uint32_t key_len);

#endif
