// The test guest in Go; ../README.md describes its policy.
package main

import (
	"strings"
	"time"
	"unsafe"

	"github.com/reqlock/reqlock/wasm/guest"
)

func main() {}

func init() {
	switch settings := guest.Settings(); {
	case len(settings) == 0:
	case settings[0] == 'l':
		for {
		}
	case settings[0] == 't':
		panic("the settings say so")
	}
	guest.Handle(decide, guest.PartMethod, guest.PartURI, guest.PartBody, "X-Fault", "X-Tenant")
}

func decide(r guest.Request, lock guest.Lock) {
	if code := r.Header("X-Fault"); code != "" && fault(code[0], lock) {
		return
	}
	uri := r.URI()
	if len(uri) > 1024 {
		lock.Deny(414, "the URI is too long")
		return
	}
	path, _, _ := strings.Cut(uri, "?")
	if path == "/health" {
		lock.Skip()
		return
	}
	tenants := r.HeaderValues("x-tenant")
	if len(tenants) != 1 || tenants[0] == "" || len(tenants[0]) > 64 {
		lock.Deny(400, "X-Tenant is missing")
		return
	}
	lock.AddKey(tenants[0] + ":" + path)
	switch method := r.Method(); method {
	case "GET", "HEAD":
		lock.SetMode(guest.ModeRead)
		lock.SetWait(time.Second)
	default:
		lock.SetMode(guest.ModeWrite)
		lock.SetWait(250 * time.Millisecond)
		lock.SetLease(5 * time.Second)
		if method == "PUT" {
			if body := r.Body(); len(body) > 0 {
				lock.AddKey(string(body[:min(len(body), 64)]))
			}
		}
	}
}

// fault triggers a fault, and reports whether the request ends with it.
func fault(code byte, lock guest.Lock) bool {
	const outside = ^uintptr(15)
	switch code {
	case 't':
		panic("the header says so")
	case 'o':
		lock.AddKey(strings.Repeat("x", int(code))[zero+200:])
	case 'z':
		lock.SetWait(time.Duration(1 / zero))
	case 'l':
		for {
		}
	case 'r':
		zero = recurse(1)
	case 'm':
		for {
			hoard = append(hoard, make([]byte, 1<<20))
		}
	case 'f':
		for range 2000 {
			guest.Log(guest.LevelInfo, strings.Repeat("flood ", 333))
		}
		return false
	case 'x':
		procExit(3)
	case 'p':
		lock.AddKey(*(*string)(unsafe.Pointer(&view{outside, 100})))
	case 'g':
		rawGetURI(outside, 1<<30)
	case 'b':
		rawReadBody(0, unsafe.Pointer(&zero), 0)
	case 'k':
		lock.AddKey(strings.Repeat("k", 5000))
	case 'u':
		lock.AddKey("\xff\xfe")
	case 'e':
		lock.AddKey("")
	case 'w':
		lock.SetWait(-1)
	case 'W':
		lock.SetWait(1 << 62)
	case 'd':
		lock.SetLease(-1)
	case 'D':
		lock.SetLease(1 << 62)
	case 'q':
		lock.SetMode(77)
	case 's':
		lock.Deny(200, "all is well")
	case 'c':
		for range 17 {
			lock.AddKey("key")
		}
	}
	return true
}

var (
	zero  = 0
	hoard [][]byte
)

// A view has the layout of a string.
type view struct{ ptr, length uintptr }

//go:noinline
func recurse(depth int) int { return recurse(depth+1) + depth }

// Calls that package guest does not allow.

//go:wasmimport http_handler get_uri
func rawGetURI(ptr uintptr, limit uint32) uint32

//go:wasmimport http_handler read_body
func rawReadBody(kind int32, ptr unsafe.Pointer, limit uint32) uint64

//go:wasmimport wasi_snapshot_preview1 proc_exit
func procExit(code int32)
