/* The test guest in C, for version 2 of the ABI; ../README.md describes its policy and its commands. */
#include "reqlock2.h"

#define TEXT(text) text, sizeof(text) - 1

REQLOCK_PLUGIN(REQLOCK_METHOD | REQLOCK_URI | REQLOCK_BODY | REQLOCK_SOURCE_ADDR | REQLOCK_PROTOCOL | REQLOCK_HOST, "x-fault\0x-tenant\0X-Command", 72 << 10)

REQLOCK_IMPORT("wasi_snapshot_preview1", "proc_exit") _Noreturn void proc_exit(int32_t code);

static char key[64 + 1 + 1024], large[5000], text[1024];
static volatile int32_t zero = 0, calls = 0;

static int equal(const char *a, uint32_t a_len, const char *b, uint32_t b_len) {
	if (a_len != b_len)
		return 0;
	for (uint32_t i = 0; i < a_len; i++)
		if (a[i] != b[i])
			return 0;
	return 1;
}

static uint32_t append(char *to, const char *from, uint32_t len) {
	for (uint32_t i = 0; i < len; i++)
		to[i] = from[i];
	return len;
}

static void forever(void) {
	for (;;)
		zero = 0;
}

static __attribute__((noinline)) int32_t recurse(int32_t depth) {
	volatile int32_t kept[64];
	kept[depth & 63] = depth;
	if (zero)
		return 0;
	return recurse(depth + 1) + kept[depth & 63];
}

static int64_t one_key(const void *ptr, uint32_t len) {
	reqlock_begin(REQLOCK_LOCK);
	reqlock_add(REQLOCK_KEY, ptr, len);
	return reqlock_end();
}

/* fault triggers a fault. 0: the policy goes on. */
static int64_t fault(char code) {
	char *outside = (char *)0xfffffff0;
	reqlock_begin(REQLOCK_LOCK);
	switch (code) {
	case 't':
		__builtin_trap();
	case 'o':
		zero = *(volatile int32_t *)outside;
		break;
	case 'z':
		zero = (7 + zero) / zero;
		break;
	case 'l':
		forever();
	case 'r':
		zero = recurse(1);
		break;
	case 'm':
		while (__builtin_wasm_memory_grow(0, 16) != (__SIZE_TYPE__)-1)
			;
		__builtin_trap();
	case 'f':
		for (int i = 0; i < 2000; i++)
			reqlock_log(REQLOCK_INFO, large, 2000);
		return 0;
	case 'x':
		proc_exit(3);
	case 'p':
		return one_key(outside, 100);
	case 'g':
		reqlock_get_uri(outside, 1 << 30);
		break;
	case 'b':
		reqlock_read_body(REQLOCK_REQUEST, text, 0);
		break;
	case 'k':
		return one_key(large, sizeof large);
	case 'u':
		return one_key(TEXT("\xff\xfe"));
	case 'e':
		return one_key("", 0);
	case 'w':
		reqlock_record.wait_ms = -2;
		break;
	case 'W':
		reqlock_record.wait_ms = 4611686018;
		break;
	case 'd':
		reqlock_record.lease_ms = -2;
		break;
	case 'D':
		reqlock_record.lease_ms = 4611686018;
		break;
	case 'q':
		reqlock_record.mode = 77;
		break;
	case 's':
		return reqlock_refuse(200, TEXT("all is well"));
	case 'c':
		for (int i = 0; i < 17; i++)
			reqlock_add(REQLOCK_KEY, TEXT("key"));
		break;
	}
	return reqlock_end();
}

/* command does what a test asks for. */
static int64_t command(char code) {
	switch (code) {
	case 'r': /* a refusal with everything */
		reqlock_refuse(429, TEXT("slow down"));
		reqlock_record.retry_after = 7;
		reqlock_add(REQLOCK_TITLE, TEXT("Too fast"));
		reqlock_add(REQLOCK_PROBLEM, TEXT("rate-limited"));
		reqlock_add(REQLOCK_REASON, TEXT("budget spent"));
		reqlock_add(REQLOCK_FIELD, TEXT("tenant=acme"));
		reqlock_add(REQLOCK_FIELD, TEXT("rule=a=b"));
		return reqlock_end();
	case 'f': /* a lock with a field */
		one_key(TEXT("k"));
		reqlock_add(REQLOCK_FIELD, TEXT("rule=7"));
		return reqlock_end();
	case 'n': /* a key that says how often this instance was called */
		calls++;
		key[0] = '0' + calls;
		return one_key(key, 1);
	case 'i': { /* a key that says how often all instances were called */
		int64_t n = reqlock_kv_incr(TEXT("calls"), 1, 60000);
		key[0] = '0' + n;
		return one_key(key, 1);
	}
	case 's': /* remember the URI; the key says whether there was room */
		key[0] = '0' + reqlock_kv_set(TEXT("uri"), reqlock_request->uri.ptr, reqlock_request->uri.len, 60000);
		return one_key(key, 1);
	case 'g': { /* the URI that s remembered */
		int64_t n = reqlock_kv_get(TEXT("uri"), text, sizeof text);
		return n < 0 ? one_key(TEXT("none")) : one_key(text, n);
	}
	case 'd':
		reqlock_kv_delete(TEXT("uri"));
		return one_key(TEXT("k"));
	case 't': /* a time that is not allowed */
		reqlock_kv_incr(TEXT("calls"), 1, 0);
		break;
	case 'l': /* a key that is too long */
		reqlock_kv_incr(large, 257, 1, 1);
		break;
	case 'a': { /* all that the request has */
		uint32_t len = 0;
		const reqlock_request_t *r = reqlock_request;
		const reqlock_text parts[] = {r->method, r->uri, r->source_addr, r->protocol, r->host, r->body};
		for (int i = 0; i < 6; i++) {
			len += append(text + len, parts[i].ptr, parts[i].len);
			text[len++] = '|';
		}
		return one_key(text, len);
	}
	}
	return 0; /* a refusal, as in http-wasm */
}

REQLOCK_EXPORT("_initialize") void initialize(void) {
	for (uint32_t i = 0; i < sizeof large; i++)
		large[i] = 'k';
	if (reqlock_get_config(text, sizeof text) == 0)
		return;
	if (text[0] == 'l')
		forever();
	if (text[0] == 't')
		__builtin_trap();
}

REQLOCK_EXPORT("handle_request") int64_t handle_request(void) {
	const reqlock_request_t *r = reqlock_request;
	reqlock_header code = r->headers[0], tenant = r->headers[1], asked = r->headers[2];
	if (asked.count == 1)
		return command(asked.ptr[0]);
	if (code.count == 1) {
		int64_t result = fault(code.ptr[0]);
		if (result)
			return result;
	}
	if (r->uri.len > 1024)
		return reqlock_refuse(414, TEXT("the URI is too long"));
	uint32_t path_len = 0;
	while (path_len < r->uri.len && r->uri.ptr[path_len] != '?')
		path_len++;
	if (equal(r->uri.ptr, path_len, TEXT("/health"))) {
		reqlock_begin(REQLOCK_SKIP);
		return reqlock_end();
	}
	if (tenant.count != 1 || tenant.len == 0 || tenant.len > 64)
		return reqlock_refuse(400, TEXT("X-Tenant is missing"));
	uint32_t len = append(key, tenant.ptr, tenant.len);
	key[len++] = ':';
	len += append(key + len, r->uri.ptr, path_len);
	one_key(key, len);
	if (equal(r->method.ptr, r->method.len, TEXT("GET")) || equal(r->method.ptr, r->method.len, TEXT("HEAD"))) {
		reqlock_record.mode = REQLOCK_READ;
		reqlock_record.wait_ms = 1000;
		return reqlock_end();
	}
	reqlock_record.mode = REQLOCK_WRITE;
	reqlock_record.wait_ms = 250;
	reqlock_record.lease_ms = 5000;
	if (equal(r->method.ptr, r->method.len, TEXT("PUT"))) {
		if (r->body.len == REQLOCK_MISSING) {
			reqlock_begin(REQLOCK_NEEDS_BODY);
			return reqlock_end();
		}
		if (r->body.len > 0 && !r->body.ptr)
			return reqlock_refuse(413, TEXT("the body does not fit"));
		if (r->body.len > 0)
			reqlock_add(REQLOCK_KEY, r->body.ptr, r->body.len < 64 ? r->body.len : 64);
	}
	return reqlock_end();
}
