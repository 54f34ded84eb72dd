package fiberlock

import (
	"net/http"
	"net/url"

	"github.com/gofiber/fiber/v3"
)

// requestOf returns the request as net/http has it, with that body. It shares no memory with
// Fiber's, which is used again for other requests while locks still have their names.
func requestOf(c fiber.Ctx, b *body) (*http.Request, error) {
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
	if b != nil {
		r.Body = b
	}
	return r, nil
}
