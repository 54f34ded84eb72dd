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
func kvGet(string, []byte) int64            { noHost(); return 0 }
func kvSet(string, []byte, int64) int32     { noHost(); return 0 }
func kvIncr(string, int64, int64) int64     { noHost(); return 0 }
func kvDelete(string)                       { noHost() }
