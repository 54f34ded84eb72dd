package fiberlock

import (
	"bytes"
	"io"
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard"
)

// small is the largest rest of a body, in bytes, that a refusal reads so that its connection goes
// on. fasthttp has read that much with the header.
const small = 8 << 10

// partlyRead is the answer if a handler would get only the rest of a body.
var partlyRead = &guard.Error{
	Status: http.StatusRequestEntityTooLarge, Type: guard.ProblemBodyTooLarge, Title: "Request body too large",
	Detail: "The request body could not be read to its end here.",
}

// A body is the body of a Fiber request. It is in memory, unless fiber.Config.StreamRequestBody is
// set: then it arrives while it is read. A handler of Fiber finds what was read by putBack. As with
// bodies of net/http, Read fails once the request has ended, also in another goroutine.
type body struct {
	c fiber.Ctx
	// length is what the client has promised. -1: nothing.
	length int64

	mu sync.Mutex
	in io.Reader // nil: nothing was read
	// count is how many bytes were read. Further Reads return end. nil: there may be more.
	count int64
	end   error
	taken bool // The handler has the rest.
}

// A reread is a body that is in memory, or was read and took the place of Fiber's. It hides Close,
// which fasthttp calls when another body takes the place.
type reread struct{ io.Reader }

// untold is the length of a body for fasthttp if a request tells none. It has no body then.
const untold = -2

// bodyOf returns the body of a request; nil: it has none.
func bodyOf(c fiber.Ctx) *body {
	length := c.Request().Header.ContentLength()
	if length == 0 || length == untold {
		return nil
	}
	return &body{c: c, length: int64(max(length, -1))}
}

// arrives reports whether a stream reads from the client; nil: there is none.
func arrives(stream io.Reader) bool {
	_, again := stream.(reread)
	return stream != nil && !again
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readLocked(p)
}

func (b *body) readLocked(p []byte) (n int, err error) {
	if b.end != nil {
		return 0, b.end
	}
	if b.in == nil {
		if b.in = b.c.Request().BodyStream(); b.in == nil {
			var data []byte
			if data, b.end = inMemory(b.c); b.end != nil {
				return 0, b.end
			}
			b.in = reread{bytes.NewReader(data)}
		}
	}
	n, b.end = b.in.Read(p)
	b.count += int64(n)
	// fasthttp ends a stream that was cut off like any other.
	if b.end == io.EOF && b.count < b.length && arrives(b.in) && !b.taken {
		b.end = io.ErrUnexpectedEOF
	}
	return n, b.end
}

func (b *body) Close() error { return nil }

// putBack gives the handler the body of r, which is b or what has replaced it. It returns false if
// it cannot: the client's body was read, but not to its end, and fasthttp lets go of a stream that
// is replaced.
func (b *body) putBack(r *http.Request) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	in := b.c.Request()
	stream := in.BodyStream()
	read := b.in != nil && stream != nil
	if read && arrives(stream) && b.end != io.EOF {
		return false
	}
	b.taken = true
	if read {
		in.SetBodyStream(reread{r.Body}, in.Header.ContentLength())
	}
	return true
}

// leave ends the reading. If no handler ran, it closes the connection after the answer, unless
// little is left of the body: fasthttp would take the rest for the next request.
func (b *body) leave() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.taken && arrives(b.c.Request().BodyStream()) {
		for p := make([]byte, 512); b.end == nil && 0 <= b.length && b.length <= small; {
			_, _ = b.readLocked(p)
		}
		if b.end != io.EOF {
			b.c.Response().SetConnectionClose()
		}
	}
	if b.end == nil {
		b.end = http.ErrBodyReadAfterClose
	}
}

var _ io.ReadCloser = (*body)(nil)
