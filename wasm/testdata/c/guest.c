/* The test guest in C; ../README.md describes its policy. */
#include "reqlock.h"

#define TEXT(text) text, sizeof(text) - 1

REQLOCK_IMPORT("wasi_snapshot_preview1", "proc_exit") _Noreturn void proc_exit(int32_t code);

static char uri[1024], tenant[65], method[16], body[64], key[64 + 1 + 1024], large[5000];
static volatile int32_t zero = 0;

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

/* fault triggers a fault, and reports whether the request ends with it. */
static int fault(char code) {
	char *outside = (char *)0xfffffff0;
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
		reqlock_add_key(outside, 100);
		break;
	case 'g':
		reqlock_get_uri(outside, 1 << 30);
		break;
	case 'b':
		reqlock_read_body(REQLOCK_REQUEST, body, 0);
		break;
	case 'k':
		reqlock_add_key(large, sizeof large);
		break;
	case 'u':
		reqlock_add_key(TEXT("\xff\xfe"));
		break;
	case 'e':
		reqlock_add_key("", 0);
		break;
	case 'w':
		reqlock_set_wait_ms(-1);
		break;
	case 'W':
		reqlock_set_wait_ms(1ll << 62);
		break;
	case 'd':
		reqlock_set_lease_ms(-1);
		break;
	case 'D':
		reqlock_set_lease_ms(1ll << 62);
		break;
	case 'q':
		reqlock_set_mode(77);
		break;
	case 's':
		reqlock_deny(200, TEXT("all is well"));
		break;
	case 'c':
		for (int i = 0; i < 17; i++)
			reqlock_add_key(TEXT("key"));
		break;
	}
	return 1;
}

REQLOCK_EXPORT("_initialize") void initialize(void) {
	char settings[1] = {0};
	for (uint32_t i = 0; i < sizeof large; i++)
		large[i] = 'k';
	if (reqlock_get_config(uri, sizeof uri) > 0)
		settings[0] = uri[0];
	if (settings[0] == 'l')
		forever();
	if (settings[0] == 't')
		__builtin_trap();
}

REQLOCK_EXPORT("handle_request") int64_t handle_request(void) {
	char code[2];
	uint64_t values = reqlock_get_header_values(REQLOCK_REQUEST, TEXT("x-fault"), code, sizeof code);
	if (values >> 32 == 1 && (uint32_t)values == 2 && fault(code[0]))
		return 1;

	uint32_t path_len = 0, uri_len = reqlock_get_uri(uri, sizeof uri);
	if (uri_len > sizeof uri) {
		reqlock_deny(414, TEXT("the URI is too long"));
		return 1;
	}
	while (path_len < uri_len && uri[path_len] != '?')
		path_len++;
	if (equal(uri, path_len, TEXT("/health"))) {
		reqlock_skip();
		return 1;
	}

	values = reqlock_get_header_values(REQLOCK_REQUEST, TEXT("x-tenant"), tenant, sizeof tenant);
	if (values >> 32 != 1 || (uint32_t)values < 2 || (uint32_t)values > sizeof tenant) {
		reqlock_deny(400, TEXT("X-Tenant is missing"));
		return 1;
	}
	uint32_t len = append(key, tenant, (uint32_t)values - 1);
	key[len++] = ':';
	len += append(key + len, uri, path_len);
	reqlock_add_key(key, len);

	uint32_t method_len = reqlock_get_method(method, sizeof method);
	if (equal(method, method_len, TEXT("GET")) || equal(method, method_len, TEXT("HEAD"))) {
		reqlock_set_mode(REQLOCK_READ);
		reqlock_set_wait_ms(1000);
		return 1;
	}
	reqlock_set_mode(REQLOCK_WRITE);
	reqlock_set_wait_ms(250);
	reqlock_set_lease_ms(5000);
	if (equal(method, method_len, TEXT("PUT"))) {
		uint32_t body_len = (uint32_t)reqlock_read_body(REQLOCK_REQUEST, body, sizeof body);
		if (body_len > 0)
			reqlock_add_key(body, body_len);
	}
	return 1;
}
