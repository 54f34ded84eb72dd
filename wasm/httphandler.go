package wasm

import (
	"math"
	"net/http"
)

// The http-wasm features this host supports: guests can read the body and the trailers after it.
// There is no response yet.
const (
	featureBufferRequest = 1
	featureTrailers      = 4
)

// httpHandler is the http-wasm module. A guest's changes go to the call's scratch, which only the
// guest sees.
var httpHandler = hostModule{
	{"enable_features", types(i32), types(i32), func(_ *instance, _ memory, s []uint64) {
		s[0] &= featureBufferRequest | featureTrailers
	}},
	{"get_config", types(i32, i32), types(i32), func(i *instance, mem memory, s []uint64) {
		s[0] = mem.fill(s[0], s[1], i.program.settings)
	}},
	{"log_enabled", types(i32), types(i32), logEnabled},
	{"log", types(i32, i32, i32), nil, guestLog},

	{"get_method", types(i32, i32), types(i32), getter((*call).method)},
	{"set_method", types(i32, i32), nil, setter(func(s *scratch, v string) { s.method = v })},
	{"get_uri", types(i32, i32), types(i32), getter((*call).uri)},
	{"set_uri", types(i32, i32), nil, setter(func(s *scratch, v string) { s.uri = v })},
	{"get_protocol_version", types(i32, i32), types(i32), getter(func(c *call) string { return c.request.Proto })},
	{"get_source_addr", types(i32, i32), types(i32), getter(func(c *call) string { return c.request.RemoteAddr })},

	{"get_header_names", types(i32, i32, i32), types(i64), inCall(func(c *call, mem memory, s []uint64) {
		s[0] = mem.fillList(s[1], s[2], c.headerNames(headerKind(s[0])))
	})},
	{"get_header_values", types(i32, i32, i32, i32, i32), types(i64), inCall(func(c *call, mem memory, s []uint64) {
		values := c.headerValues(headerKind(s[0]), http.CanonicalHeaderKey(mem.name(s[1], s[2])))
		s[0] = mem.fillList(s[3], s[4], values)
	})},
	{"set_header_value", types(i32, i32, i32, i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		name, value := c.header(mem, s)
		c.editHeaders(headerKind(s[0])).Set(name, value)
	})},
	{"add_header_value", types(i32, i32, i32, i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		name, value := c.header(mem, s)
		c.editHeaders(headerKind(s[0])).Add(name, value)
	})},
	{"remove_header", types(i32, i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		c.editHeaders(headerKind(s[0])).Del(mem.name(s[1], s[2]))
	})},

	{"read_body", types(i32, i32, i32), types(i64), inCall(func(c *call, mem memory, s []uint64) {
		limit := uint32(s[2])
		if limit == 0 {
			panic(abort{trapped("%s: buf_limit is 0", mem.function)})
		}
		body := c.body(bodyKind(s[0]))
		if body.err != nil {
			panic(abort{bodyError(body.err)})
		}
		length := min(uint64(len(body.unread)), uint64(limit))
		copy(mem.bytes(s[1], length), body.unread)
		body.unread = body.unread[length:]
		s[0] = bit(len(body.unread) == 0)<<32 | length
	})},
	{"write_body", types(i32, i32, i32), nil, inCall(func(c *call, mem memory, s []uint64) {
		kind, text := bodyKind(s[0]), mem.bytes(s[1], s[2])
		c.spend(len(text))
		c.body(kind).write(text)
	})},
	{"get_status_code", nil, types(i32), inCall(func(c *call, _ memory, s []uint64) { s[0] = uint64(c.scratch.status) })},
	{"set_status_code", types(i32), nil, inCall(func(c *call, _ memory, s []uint64) { c.scratch.status = uint32(s[0]) })},
}

func getter(value func(*call) string) func(*instance, memory, []uint64) {
	return inCall(func(c *call, mem memory, s []uint64) { s[0] = mem.fill(s[0], s[1], value(c)) })
}

func setter(set func(*scratch, string)) func(*instance, memory, []uint64) {
	return inCall(func(c *call, mem memory, s []uint64) {
		c.spend(int(uint32(s[1])))
		set(&c.scratch, mem.string(s[0], s[1]))
	})
}

// header reads the arguments of set_header_value and add_header_value.
func (c *call) header(mem memory, s []uint64) (name, value string) {
	c.spend(int(uint32(s[2])))
	c.spend(int(uint32(s[4])))
	return mem.name(s[1], s[2]), mem.string(s[3], s[4])
}

const (
	kindRequest = iota
	kindResponse
	kindRequestTrailers
	kindResponseTrailers
	kinds
)

func headerKind(kind uint64) uint32 {
	if uint32(kind) >= kinds {
		panic(abort{breach("header_kind is %d; use 0 for the request, 1 for the response, 2 and 3 for their trailers", int32(kind))})
	}
	return uint32(kind)
}

func bodyKind(kind uint64) uint32 {
	if uint32(kind) > kindResponse {
		panic(abort{breach("body_kind is %d; use 0 for the request, or 1 for the response", int32(kind))})
	}
	return uint32(kind)
}

// maxScratch limits the bytes a guest may write in one call. Each write counts a little extra.
const maxScratch = 1 << 20

func (c *call) spend(length int) {
	c.spent = min(math.MaxInt32, c.spent+length+64)
	if c.spent > maxScratch {
		panic(abort{breach("it wrote more than %d bytes in one call", maxScratch)})
	}
}
