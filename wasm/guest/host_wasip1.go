package guest

import "unsafe"

//go:wasmexport reqlock_v2
func reqlockV2() uint32 {
	if decide == nil {
		panic("reqlock: guest: guest.Handle was not called; call it from an init function")
	}
	return address(unsafe.Pointer(&declaration))
}

//go:wasmexport handle_request
func handleRequest() uint64 { return uint64(handle()) }

const kindRequest = 0

func getConfig(buf []byte) uint32          { return hostConfig(room(buf)) }
func getMethod(buf []byte) uint32          { return hostGetMethod(room(buf)) }
func getURI(buf []byte) uint32             { return hostGetURI(room(buf)) }
func getProtocolVersion(buf []byte) uint32 { return hostGetProtocolVersion(room(buf)) }
func getSourceAddr(buf []byte) uint32      { return hostGetSourceAddr(room(buf)) }

func getHeaderNames(buf []byte) uint64 {
	ptr, limit := room(buf)
	return hostGetHeaderNames(kindRequest, ptr, limit)
}

func getHeaderValues(name string, buf []byte) uint64 {
	ptr, limit := room(buf)
	return hostGetHeaderValues(kindRequest, name, ptr, limit)
}

func readBody(buf []byte) uint64 {
	ptr, limit := room(buf)
	return hostReadBody(kindRequest, ptr, limit)
}

func kvGet(key string, buf []byte) int64 {
	ptr, limit := room(buf)
	return hostKVGet(key, ptr, limit)
}

func kvSet(key string, value []byte, ttlMS int64) int32 {
	ptr, length := room(value)
	return hostKVSet(key, ptr, length, ttlMS)
}

func room(buf []byte) (ptr unsafe.Pointer, limit uint32) {
	return unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf))
}

//go:wasmimport reqlock_v2 config
func hostConfig(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport reqlock_v2 log
func hostLog(level int32, text string)

//go:wasmimport reqlock_v2 kv_get
func hostKVGet(key string, buf unsafe.Pointer, limit uint32) int64

//go:wasmimport reqlock_v2 kv_set
func hostKVSet(key string, value unsafe.Pointer, length uint32, ttlMS int64) int32

//go:wasmimport reqlock_v2 kv_incr
func kvIncr(key string, delta, ttlMS int64) int64

//go:wasmimport reqlock_v2 kv_delete
func kvDelete(key string)

//go:wasmimport http_handler get_method
func hostGetMethod(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport http_handler get_uri
func hostGetURI(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport http_handler get_protocol_version
func hostGetProtocolVersion(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport http_handler get_source_addr
func hostGetSourceAddr(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport http_handler get_header_names
func hostGetHeaderNames(kind int32, buf unsafe.Pointer, limit uint32) uint64

//go:wasmimport http_handler get_header_values
func hostGetHeaderValues(kind int32, name string, buf unsafe.Pointer, limit uint32) uint64

//go:wasmimport http_handler read_body
func hostReadBody(kind int32, buf unsafe.Pointer, limit uint32) uint64
