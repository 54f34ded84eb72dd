package guest

import "unsafe"

//go:wasmexport handle_request
func handleRequest() uint64 {
	if decide == nil {
		panic("reqlock: guest: guest.Handle was not called; call it from an init function")
	}
	decide(Request{}, Lock{})
	return 1 // let the handler run
}

const kindRequest = 0

func getConfig(buf []byte) uint32          { return hostGetConfig(room(buf)) }
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

func room(buf []byte) (ptr unsafe.Pointer, limit uint32) {
	return unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf))
}

//go:wasmimport http_handler get_config
func hostGetConfig(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport http_handler log
func hostLog(level int32, text string)

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

//go:wasmimport reqlock_v1 add_key
func addKey(key string)

//go:wasmimport reqlock_v1 set_wait_ms
func setWaitMS(ms int64)

//go:wasmimport reqlock_v1 set_lease_ms
func setLeaseMS(ms int64)

//go:wasmimport reqlock_v1 set_mode
func setMode(mode int32)

//go:wasmimport reqlock_v1 skip
func skip()

//go:wasmimport reqlock_v1 deny
func deny(status int32, text string)
