package fiberlock

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/adapter"
)

// requestOf returns the request as net/http has it, with that path and body. It shares no memory
// with Fiber's, which is used again for other requests while locks still have their names.
func requestOf(c fiber.Ctx, path string, b *body) (*http.Request, error) {
	in := &c.RequestCtx().Request
	uri := string(in.RequestURI())
	u, err := url.ParseRequestURI(uri)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath = path, ""
	if !c.App().Config().UnescapePath { // otherwise Fiber has
		if u.Path, err = url.PathUnescape(path); err != nil {
			return nil, err
		}
		u.RawPath = path
	}
	r := &http.Request{
		Method:     string(in.Header.Method()),
		URL:        u,
		Proto:      string(in.Header.Protocol()),
		Header:     make(http.Header),
		Body:       http.NoBody,
		Host:       string(in.Host()),
		RemoteAddr: c.RequestCtx().RemoteAddr().String(),
		RequestURI: uri,
		TLS:        c.RequestCtx().TLSConnectionState(),
	}
	r.ProtoMajor, r.ProtoMinor, _ = http.ParseHTTPVersion(r.Proto)
	for name, value := range in.Header.All() {
		if key := http.CanonicalHeaderKey(string(name)); key != "Host" {
			r.Header[key] = append(r.Header[key], string(value))
		}
	}
	if b != nil {
		r.Body, r.ContentLength = b, b.length
	}
	return r, nil
}

// pathOf returns the path as Fiber's router reads it by its Config: one for all spellings of a
// route. known is false if the route that will answer is unknown, as in App.Use, and its spelling
// may differ.
func pathOf(c fiber.Ctx, pattern string, values []string) (path string, known bool) {
	cfg := c.App().Config()
	ignored := adapter.Spelling{AnyCase: !cfg.CaseSensitive, AnySlash: !cfg.StrictRouting}
	return ignored.Canonical(strings.Clone(c.Path()), pattern, values)
}
