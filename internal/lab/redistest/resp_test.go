package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadReply(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		raw   string
		kind  byte
		heads []string
	}{
		"simple string":     {"+OK\r\n", '+', nil},
		"empty string":      {"+\r\n", '+', nil},
		"error":             {"-ERR no\r\n", '-', nil},
		"integer":           {":-7\r\n", ':', nil},
		"bulk":              {"$5\r\nhel\r\n\r\n", '$', nil},
		"empty bulk":        {"$0\r\n\r\n", '$', nil},
		"null bulk":         {"$-1\r\n", '$', nil},
		"big bulk":          {"$1048576\r\n" + big + "\r\n", '$', nil},
		"long line":         {"+" + big + "\r\n", '+', nil},
		"array":             {"*2\r\n$1\r\na\r\n:1\r\n", '*', []string{"a", "1"}},
		"empty array":       {"*0\r\n", '*', nil},
		"null array":        {"*-1\r\n", '*', nil},
		"nested array":      {"*2\r\n*1\r\n*2\r\n:1\r\n$1\r\na\r\n+x\r\n", '*', []string{"", "x"}},
		"null":              {"_\r\n", '_', nil},
		"boolean":           {"#t\r\n", '#', nil},
		"double":            {",1.5e3\r\n", ',', nil},
		"infinity":          {",-inf\r\n", ',', nil},
		"big number":        {"(3492890328409238509324850943850943825024385\r\n", '(', nil},
		"bulk error":        {"!6\r\nERR no\r\n", '!', nil},
		"verbatim":          {"=8\r\ntxt:a\r\nb\r\n", '=', nil},
		"map":               {"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n%1\r\n_\r\n#f\r\n", '%', nil},
		"set":               {"~2\r\n:1\r\n:2\r\n", '~', []string{"1", "2"}},
		"push":              {">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", '>', []string{"message", "c"}},
		"with attributes":   {"|1\r\n+ttl\r\n:3600\r\n*1\r\n$1\r\na\r\n", '*', []string{"a"}},
		"attributes twice":  {"|1\r\n+a\r\n:1\r\n|1\r\n+b\r\n%1\r\n:1\r\n:2\r\n:5\r\n", ':', nil},
		"attributes inside": {"*2\r\n|1\r\n+a\r\n:1\r\n$1\r\nx\r\n$1\r\ny\r\n", '*', []string{"x", "y"}},
		"unsubscribed":      {">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n", '>', []string{"unsubscribe", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Twice, so that a value that reads too much or too little breaks the next.
			in := newRESPReader(iotest.HalfReader(strings.NewReader(test.raw + test.raw)))
			for range 2 {
				f, err := in.reply()
				if err != nil {
					t.Fatal(err)
				}
				if string(f.raw) != test.raw || f.kind != test.kind || !slices.Equal(f.heads, test.heads) {
					t.Fatalf("got kind %c, heads %q, %d bytes", f.kind, f.heads, len(f.raw))
				}
			}
			if _, err := in.reply(); err != io.EOF {
				t.Fatalf("at the end: %v, want io.EOF", err)
			}
			for _, cut := range []int{1, len(test.raw) / 2, len(test.raw) - 1} {
				_, err := newRESPReader(strings.NewReader(test.raw[:cut])).reply()
				if err != io.ErrUnexpectedEOF {
					t.Fatalf("after %d bytes: %v, want io.ErrUnexpectedEOF", cut, err)
				}
			}
		})
	}
}

func TestReadBadReply(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"hello\r\n", "+OK\n", "\r\n", "$x\r\n", "$-2\r\n", "$3\r\nabcdef\r\n", "*1\r\n?\r\n", "$9999999999\r\n", "$?\r\n", "*\r\n",
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			if f, err := newRESPReader(strings.NewReader(raw)).reply(); !errors.Is(err, errProtocol) {
				t.Errorf("got %+v, %v, want a protocol error", f, err)
			}
		})
	}
}

func TestReadRequest(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"one word": {"PING"},
		"empty":    {"SET", "", ""},
		"binary":   {"SET", "k", "\x00\r\n$1\r\n*"},
		"big":      {"SET", "k", strings.Repeat("x", 1<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := string(encode(args...))
			in := newRESPReader(iotest.HalfReader(strings.NewReader(want + want)))
			for range 2 {
				raw, got, err := in.request()
				if err != nil || string(raw) != want || !slices.Equal(got, args) {
					t.Fatalf("%d arguments, %d bytes, %v", len(got), len(raw), err)
				}
			}
			if _, _, err := in.request(); err != io.EOF {
				t.Fatalf("at the end: %v, want io.EOF", err)
			}
			if _, _, err := newRESPReader(strings.NewReader(want[:len(want)-1])).request(); err != io.ErrUnexpectedEOF {
				t.Fatalf("in the middle: %v, want io.ErrUnexpectedEOF", err)
			}
		})
	}
}

func TestReadBadRequest(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"PING\r\n", "*0\r\n", "*-1\r\n", "*x\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nabc\r\n", "GET / HTTP/1.1\r\n"} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			if _, args, err := newRESPReader(strings.NewReader(raw)).request(); !errors.Is(err, errProtocol) {
				t.Errorf("got %q, %v, want a protocol error", args, err)
			}
		})
	}
}

func FuzzReadReply(f *testing.F) {
	f.Add("*2\r\n$1\r\na\r\n:1\r\n")
	f.Add("|1\r\n+ttl\r\n:3600\r\n%1\r\n+a\r\n_\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		in := respReader{in: bufio.NewReader(strings.NewReader(stream))}
		var read strings.Builder
		for {
			f, err := in.reply()
			if err != nil {
				break
			}
			read.Write(f.raw)
		}
		if !strings.HasPrefix(stream, read.String()) {
			t.Errorf("read %q from %q", read.String(), stream)
		}
	})
}

// A command is read as it was written, and reading never goes beyond it.
func FuzzReadRequest(f *testing.F) {
	f.Add("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n")
	f.Add("*-1\r\n")
	f.Add("PING\r\n")
	f.Add("*2\r\n$4\r\nPING\r\n$99999\r\n")
	f.Fuzz(func(t *testing.T, stream string) {
		in := newRESPReader(strings.NewReader(stream))
		var read strings.Builder
		for {
			raw, args, err := in.request()
			if err != nil {
				break
			}
			read.Write(raw)
			again, same, err := newRESPReader(bytes.NewReader(encode(args...))).request()
			if err != nil || !slices.Equal(args, same) || !bytes.Equal(again, encode(args...)) {
				t.Errorf("%q is read as %q, and written again as %q (%v)", raw, args, same, err)
			}
		}
		if !strings.HasPrefix(stream, read.String()) {
			t.Errorf("read %q from %q", read.String(), stream)
		}
	})
}
