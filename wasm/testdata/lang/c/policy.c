#include "reqlock2.h"

#define TEXT(text) text, sizeof(text) - 1

REQLOCK_PLUGIN(REQLOCK_METHOD | REQLOCK_URI, "X-Tenant", 16384)

static int is(const char *text, uint32_t len, const char *want, uint32_t want_len) {
	return len == want_len && __builtin_memcmp(text, want, len) == 0;
}

int memcmp(const void *a, const void *b, __SIZE_TYPE__ n) {
	const char *x = a, *y = b;
	for (; n > 0; n--, x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

REQLOCK_EXPORT("handle_request") int64_t handle_request(void) {
	reqlock_text uri = reqlock_request->uri, method = reqlock_request->method;
	reqlock_header tenant = reqlock_request->headers[0];
	uint32_t path = 0;
	while (uri.ptr && path < uri.len && uri.ptr[path] != '?')
		path++;
	if (is(uri.ptr, path, TEXT("/health"))) {
		reqlock_begin(REQLOCK_SKIP);
		return reqlock_end();
	}
	if (tenant.count != 1 || tenant.len < 1 || tenant.len > 64) {
		reqlock_refuse(400, TEXT("X-Tenant is missing"));
		reqlock_add(REQLOCK_REASON, TEXT("no-tenant"));
		return reqlock_end();
	}
	if (reqlock_kv_incr(tenant.ptr, tenant.len, 1, 60000) > 1000) {
		reqlock_refuse(429, TEXT("Too many requests"));
		reqlock_record.retry_after = 60;
		reqlock_add(REQLOCK_PROBLEM, TEXT("rate-limited"));
		return reqlock_end();
	}
	reqlock_begin(REQLOCK_LOCK);
	reqlock_add(REQLOCK_KEY, tenant.ptr, tenant.len);
	if (is(method.ptr, method.len, TEXT("GET")) || is(method.ptr, method.len, TEXT("HEAD"))) {
		reqlock_record.mode = REQLOCK_READ;
	} else {
		reqlock_record.mode = REQLOCK_WRITE;
		reqlock_record.wait_ms = 2000;
	}
	return reqlock_end();
}
