//go:build !wasip1

package guest

// noHost panics: this build is not for a host.
var noHost = func() {
	panic("reqlock: guest: no host; build with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared")
}

func getConfig([]byte) uint32               { noHost(); return 0 }
func getMethod([]byte) uint32               { noHost(); return 0 }
func getURI([]byte) uint32                  { noHost(); return 0 }
func getProtocolVersion([]byte) uint32      { noHost(); return 0 }
func getSourceAddr([]byte) uint32           { noHost(); return 0 }
func getHeaderNames([]byte) uint64          { noHost(); return 0 }
func getHeaderValues(string, []byte) uint64 { noHost(); return 0 }
func readBody([]byte) uint64                { noHost(); return 0 }
func hostLog(int32, string)                 { noHost() }
func addKey(string)                         { noHost() }
func setWaitMS(int64)                       { noHost() }
func setLeaseMS(int64)                      { noHost() }
func setMode(int32)                         { noHost() }
func skip()                                 { noHost() }
func deny(int32, string)                    { noHost() }
