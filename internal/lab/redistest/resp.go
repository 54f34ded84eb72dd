package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// longest is Redis's own limit for a bulk string.
const longest = 512 << 20

// errProtocol is wrapped by every error about invalid or unsupported RESP.
var errProtocol = errors.New("protocol error")

// frame is one complete reply or push frame.
type frame struct {
	// raw is what was received.
	raw []byte
	// kind describes the value itself, without attributes before it.
	kind byte
	// heads are the first two elements of an array or a push. An element that is no string is "".
	heads []string
}

// head returns the i-th of the first two elements of an array or push, or "".
func (f frame) head(i int) string {
	if i < len(f.heads) {
		return f.heads[i]
	}
	return ""
}

// respReader splits a byte stream into requests or replies and keeps their raw bytes.
type respReader struct {
	in *bufio.Reader
	// raw belongs to the value that is being read.
	raw []byte
}

func newRESPReader(r io.Reader) *respReader {
	return &respReader{in: bufio.NewReaderSize(r, 16<<10)}
}

// request reads one command. Its error is io.EOF only if the stream ends between two commands.
func (r *respReader) request() (raw []byte, args []string, err error) {
	r.raw = nil
	args, err = r.command()
	return r.raw, args, r.whole(err)
}

func (r *respReader) command() ([]string, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if line[0] != '*' {
		return nil, fmt.Errorf("%w: expected '*', got %q (inline commands are not supported)", errProtocol, line)
	}
	n, err := length(line)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%w: invalid multibulk length %q", errProtocol, line[1:])
	}
	var args []string
	for range n {
		arg, err := r.argument()
		if err != nil {
			return nil, err
		}
		args = append(args, string(arg))
	}
	return args, nil
}

func (r *respReader) argument() ([]byte, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	n, err := length(line)
	if err != nil || line[0] != '$' || n < 0 {
		return nil, fmt.Errorf("%w: expected a bulk string, got %q", errProtocol, line)
	}
	return r.bulk(n)
}

// reply reads one reply or push frame, with the attributes before it. Its error is io.EOF only if
// the stream ends between two frames.
func (r *respReader) reply() (frame, error) {
	r.raw = nil
	var f frame
	_, err := r.value(&f)
	f.raw = r.raw
	return f, r.whole(err)
}

// value reads one value of any kind and returns the text of strings and other scalars. It describes
// the value in top, if not nil.
func (r *respReader) value(top *frame) ([]byte, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	kind := line[0]
	if top != nil {
		top.kind = kind
	}
	if strings.IndexByte("+-:_#,(", kind) >= 0 {
		return line[1:], nil
	}
	n, err := length(line)
	if err != nil {
		return nil, err
	}
	switch kind {
	case '$', '=', '!':
		if n < 0 {
			return nil, nil
		}
		return r.bulk(n)
	case '*', '>', '~':
		return nil, r.elements(n, top)
	case '%':
		return nil, r.elements(2*n, nil)
	case '|':
		if err := r.elements(2*n, nil); err != nil {
			return nil, err
		}
		return r.value(top)
	}
	return nil, fmt.Errorf("%w: unknown type %q", errProtocol, line)
}

func (r *respReader) elements(n int, top *frame) error {
	for i := range n {
		text, err := r.value(nil)
		if err != nil {
			return err
		}
		if top != nil && i < 2 {
			top.heads = append(top.heads, string(text))
		}
	}
	return nil
}

// line reads up to CRLF and returns the line without it. A line has at least its type byte.
func (r *respReader) line() ([]byte, error) {
	start := len(r.raw)
	for {
		part, err := r.in.ReadSlice('\n')
		r.raw = append(r.raw, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
	line, ok := bytes.CutSuffix(r.raw[start:], []byte("\r\n"))
	if !ok || len(line) == 0 {
		return nil, fmt.Errorf("%w: bad line %q", errProtocol, r.raw[start:])
	}
	return line, nil
}

// bulk reads n bytes and CRLF, and returns the bytes.
func (r *respReader) bulk(n int) ([]byte, error) {
	start := len(r.raw)
	r.raw = slices.Grow(r.raw, n+2)[:start+n+2]
	if _, err := io.ReadFull(r.in, r.raw[start:]); err != nil {
		return nil, err
	}
	if string(r.raw[start+n:]) != "\r\n" {
		return nil, fmt.Errorf("%w: a string of %d bytes does not end with CRLF", errProtocol, n)
	}
	return r.raw[start : start+n], nil
}

// whole converts io.EOF to io.ErrUnexpectedEOF if part of a value has been read.
func (r *respReader) whole(err error) error {
	if errors.Is(err, io.EOF) && len(r.raw) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// length parses the number after the type byte; -1 means null.
func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < -1 || n > longest {
		return 0, fmt.Errorf("%w: bad length or type %q", errProtocol, line)
	}
	return n, nil
}

// encode returns a command in RESP.
func encode(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
