package fiberlock

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// requestOf returns the request as net/http has it. It shares no memory with Fiber's, which is used
// again for other requests while locks still have their names.
func requestOf(c fiber.Ctx) (*http.Request, error) {
	in := &c.RequestCtx().Request
	uri := string(in.RequestURI())
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, err
	}
	r := &http.Request{
		Method:        string(in.Header.Method()),
		URL:           u,
		Proto:         string(in.Header.Protocol()),
		Header:        make(http.Header),
		Body:          http.NoBody,
		ContentLength: int64(max(in.Header.ContentLength(), -1)),
		Host:          string(in.Host()),
		RemoteAddr:    c.RequestCtx().RemoteAddr().String(),
		RequestURI:    uri,
		TLS:           c.RequestCtx().TLSConnectionState(),
	}
	r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(r.Proto)
	for name, value := range in.Header.All() {
		if key := http.CanonicalHeaderKey(string(name)); key != "Host" {
			r.Header[key] = append(r.Header[key], string(value))
		}
	}
	if r.ContentLength != 0 {
		r.Body = &body{c: c}
	}
	return r, nil
}

// A body reads Fiber's body, which is in memory, unless fiber.Config.StreamRequestBody is set: then
// the first Read reads all of it, and handlers find it there.
type body struct {
	c  fiber.Ctx
	in *strings.Reader
}

func (b *body) Read(p []byte) (int, error) {
	if b.in == nil {
		b.in = strings.NewReader(string(b.c.RequestCtx().Request.Body()))
	}
	return b.in.Read(p)
}

func (b *body) Close() error { return nil }

var _ io.ReadCloser = (*body)(nil)
