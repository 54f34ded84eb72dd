package idempotency

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// worstBodies returns bodies of 1 MiB, each with a shape that takes much time or memory.
func worstBodies() map[string]string {
	const size = 1 << 20
	repeat := func(begin, part, end string) string {
		return begin + strings.Repeat(part, (size-len(begin)-len(end))/len(part)) + end
	}
	var keys, wide strings.Builder
	for i := 0; keys.Len() < size-20; i++ {
		fmt.Fprintf(&keys, `,"%s":1`, shortName(i))
	}
	// 9,000 open objects, each with as many short names as it can have.
	for i := 0; wide.Len() < size-100_000; i++ {
		wide.WriteByte('{')
		for j := range 17 {
			fmt.Fprintf(&wide, `"%s":1,`, shortName(j))
		}
		wide.WriteString(`"":`)
	}
	wide.WriteString("1")
	wide.WriteString(strings.Repeat("}", strings.Count(wide.String(), "{")))
	return map[string]string{
		"numbers":        repeat("[1", ",1", "]"),
		"small objects":  repeat("[{}", `,{"a":1}`, "]"),
		"empty objects":  repeat("[{}", ",{}", "]"),
		"many keys":      "{" + keys.String()[1:] + "}",
		"deep arrays":    repeat("[", strings.Repeat("[", 9000)+"1"+strings.Repeat("]", 9000)+",", "1]"),
		"deep objects":   repeat("[", strings.Repeat(`{"a":`, 4000)+"1"+strings.Repeat("}", 4000)+",", "1]"),
		"deep and wide":  wide.String(),
		"one string":     repeat(`"`, "x", `"`),
		"escapes":        repeat(`"`, `\u00e9`, `"`),
		"strings":        repeat(`["a"`, `,"a"`, "]"),
		"objects, mixed": repeat("[1", `,{"id":12345,"name":"some name","tags":["a","b"],"price":12.50}`, "]"),
	}
}

// shortName returns the i-th of short names that differ in more than case.
func shortName(i int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_.:;,!?#$%&()*+<=>@[]^`{|}~ '/"
	name := []byte{letters[i%len(letters)]}
	for i /= len(letters); i > 0; i /= len(letters) {
		i--
		name = append(name, letters[i%len(letters)])
	}
	return string(name)
}

// BenchmarkFingerprint measures the fingerprints of bodies of 1 MiB.
func BenchmarkFingerprint(b *testing.B) {
	r := httptest.NewRequest("POST", "/orders/1", nil)
	for shape, body := range worstBodies() {
		for kind, f := range map[string]Fingerprint{"FingerprintJSON": FingerprintJSON, "FingerprintFields": FingerprintFields("/a/b", "/0")} {
			b.Run(kind+"/"+shape, func(b *testing.B) {
				data := []byte(body)
				b.ReportAllocs()
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					fingerprint(f, r, data)
				}
			})
		}
	}
	for shape, form := range worstForms() {
		b.Run("FingerprintBody/"+shape, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/orders/1", nil)
			r.Header.Set("Content-Type", formType)
			b.ReportAllocs()
			b.SetBytes(int64(len(form)))
			for b.Loop() {
				fingerprint(FingerprintBody, r, form)
			}
		})
	}
	for size, body := range map[string][]byte{"200 bytes": make([]byte, 200), "1 MiB": make([]byte, 1<<20)} {
		b.Run("FingerprintBody/"+size, func(b *testing.B) {
			r := httptest.NewRequest("POST", "/orders/1", nil)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept-Encoding", "gzip")
			r.Header.Set("User-Agent", "Go-http-client/1.1")
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				fingerprint(FingerprintBody, r, body)
			}
		})
	}
}

// formType is the Content-Type of worstForms.
const formType = "multipart/form-data; boundary=b"

// worstForms returns forms of parts, each with a shape that takes much time or memory.
func worstForms() map[string][]byte {
	const size = 1 << 20
	form := func(part string, n int) []byte {
		return []byte(strings.Repeat("--b\r\n"+part+"\r\n", n) + "--b--\r\n")
	}
	var names strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&names, "%s:\r\n", strings.ToUpper(strconv.FormatInt(int64(i+36), 36)))
	}
	return map[string][]byte{
		"a file":            form("\r\n"+strings.Repeat("x", size), 1),
		"boundaries inside": form("\r\n"+strings.Repeat("\r\n--bb", size/6), 1),
		"line ends":         form("\r\n"+strings.Repeat("\r\n", size/2), 1),
		"1,000 parts":       form("A: 1\r\n\r\n"+strings.Repeat("x", size/1000), 1000),
		"a long header":     form("A: "+strings.Repeat("x", size)+"\r\n\r\n", 1),
		"a folded header":   form("A: x\r\n"+strings.Repeat(" x\r\n", size/4)+"\r\n", 1),
		"9,000 headers":     form(names.String()+"\r\n", 1),
	}
}
