package caddylock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/reqlock/reqlock/keyfuncs"
)

// parseKey returns the key function of a template with Caddy's placeholders and the sources of
// keyfuncs.
func parseKey(template string) (keyfuncs.Func, error) {
	return keyfuncs.ParseTemplateWith(template, source)
}

const (
	prefixRequest  = "http.request."
	prefixTLS      = "http.request.tls."
	prefixPath     = "http.request.uri.path."
	prefixOrigPath = "http.request.orig_uri.path."
	prefixLabels   = "http.request.host.labels."
)

// own are the placeholders that keyfuncs reads better: it refuses a header sent twice, where Caddy
// joins the values, and knows one form of equal hosts and addresses.
var own = map[string]keyfuncs.Func{
	"http.request.method":        keyfuncs.Method(),
	"http.request.host":          hostname,
	"http.request.hostport":      keyfuncs.Host(),
	"path":                       currentPath,
	"http.request.uri.path":      currentPath,
	"http.request.orig_uri.path": originalPath,
	"http.vars.client_ip":        address("http.vars.client_ip"),
	"http.request.remote.host":   address("http.request.remote.host"),
}

// useless are placeholders that make no sense in a key, and why.
var useless = map[string]string{
	"http.request.uuid":             "differs for each request, so requests would never exclude each other",
	"http.request.duration":         "differs for each request, so requests would never exclude each other",
	"http.request.duration_ms":      "differs for each request, so requests would never exclude each other",
	"http.request.remote":           "has the port, which differs for each connection; use {http.request.remote.host}",
	"http.request.remote.port":      "differs for each connection, so requests would never exclude each other",
	"http.request.body":             "is the whole body; use {body.hash}, or a field of it such as {json./order/id}",
	"http.request.body_base64":      "is the whole body; use {body.hash}, or a field of it such as {json./order/id}",
	"http.request.uri_escaped":      "keeps escapes, so one path could have several keys; use {http.request.uri.path}",
	"http.request.uri.path_escaped": "keeps escapes, so one path could have several keys; use {http.request.uri.path}",
	"pattern":                       "is unknown: Caddy has no patterns; use a text of your own",
}

// source returns the source that a name in a template stands for; nil: it is one of keyfuncs.
func source(name string) (keyfuncs.Func, error) {
	if fn, ok := own[name]; ok {
		return fn, nil
	}
	if why, ok := useless[name]; ok {
		return nil, fmt.Errorf("{%s} %s", name, why)
	}
	switch {
	case strings.HasPrefix(name, "time."):
		return nil, fmt.Errorf("{%s} changes with time, so requests would never exclude each other", name)
	case strings.HasPrefix(name, "http.response."), strings.HasPrefix(name, "http.reverse_proxy."), strings.HasPrefix(name, "http.intercept."):
		return nil, fmt.Errorf("{%s} is unknown before the request has been handled", name)
	case strings.HasPrefix(name, "path."):
		return segment("path.", name, currentPath)
	case strings.HasPrefix(name, prefixPath) && !slices.Contains(partsOfPath, name[len(prefixPath):]):
		return segment(prefixPath, name, currentPath)
	case strings.HasPrefix(name, prefixOrigPath) && !slices.Contains(partsOfPath, name[len(prefixOrigPath):]):
		return segment(prefixOrigPath, name, originalPath)
	case strings.HasPrefix(name, prefixLabels):
		return label(name)
	case ofKeyfuncs(name):
		return nil, nil
	}
	if fn, err := delegate(name); fn != nil || err != nil {
		return fn, err
	}
	return placeholder(name)
}

// partsOfPath are the placeholders below the path that are not the number of a segment.
var partsOfPath = []string{"file", "dir", "file.base", "file.ext", "file_escaped"}

// kindsOfKeyfuncs are the sources of keyfuncs.ParseTemplate up to their first dot, but for path and
// pattern, which differ here.
var kindsOfKeyfuncs = []string{"header", "query", "cookie", "form", "json", "method", "host", "ip", "body"}

func ofKeyfuncs(name string) bool {
	kind, _, _ := strings.Cut(name, ".")
	return slices.Contains(kindsOfKeyfuncs, kind)
}

// delegates are the placeholders with a name in them that keyfuncs reads.
var delegates = []struct {
	prefix, kind string
	source       func(name string) keyfuncs.Func
}{
	{"http.request.header.", "header", keyfuncs.Header},
	{"http.request.uri.query.", "query", keyfuncs.Query},
	{"http.request.cookie.", "cookie", keyfuncs.Cookie},
}

// delegate returns the source of keyfuncs for a placeholder; nil: there is none.
func delegate(placeholder string) (keyfuncs.Func, error) {
	for _, d := range delegates {
		name, ok := strings.CutPrefix(placeholder, d.prefix)
		if !ok {
			continue
		}
		if _, err := keyfuncs.ParseTemplate("{" + d.kind + "." + name + "}"); err != nil {
			return nil, fmt.Errorf("{%s} is not a placeholder: %w", placeholder, err)
		}
		return d.source(name), nil
	}
	return nil, nil
}

// The services behind Caddy are as strict as a route with a catch-all at best: many decode an
// escaped slash before they match, so it must not make another key.
const catchAll = "/{path...}"

var path = keyfuncs.Path()

// currentPath is the path that the service behind Caddy gets: rewritten, without a prefix that
// handle_path has stripped.
func currentPath(r *http.Request) (string, error) {
	return path(&http.Request{URL: r.URL, Pattern: catchAll})
}

// originalPath is the path that the client sent.
func originalPath(r *http.Request) (string, error) {
	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok || original.URL == nil {
		return currentPath(r)
	}
	return path(&http.Request{URL: original.URL, Pattern: catchAll})
}

// segment is one segment of a path, counted from 0.
func segment(prefix, name string, path keyfuncs.Func) (keyfuncs.Func, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
	if err != nil || n < 0 {
		return nil, fmt.Errorf("{%s} is not a placeholder: Caddy numbers the segments of a path from 0, so that 42 in /orders/42 is {%s1}; "+
			"name one with path_regexp and {http.regexp.NAME.GROUP}", name, prefix)
	}
	return func(r *http.Request) (string, error) {
		whole, err := path(r)
		if err != nil {
			return "", err
		}
		segments := strings.Split(strings.TrimPrefix(whole, "/"), "/")
		if n >= len(segments) {
			return "", nil // missing
		}
		return segments[n], nil
	}, nil
}

var host = keyfuncs.Host()

// hostname is the host without the port, as Caddy has it.
func hostname(r *http.Request) (string, error) {
	name, _, err := net.SplitHostPort(r.Host)
	switch {
	case err != nil:
		name = r.Host // there is no port
	case strings.Contains(name, ":"):
		name = "[" + name + "]"
	}
	return host(&http.Request{Host: name})
}

// label is one label of the host, counted from 0 at its end. Caddy takes the dot at the end of
// a.example. for one more label, which would give a client a second key for each host.
func label(name string) (keyfuncs.Func, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, prefixLabels))
	if err != nil || n < 0 {
		return nil, fmt.Errorf("{%s} is not a placeholder: Caddy numbers the labels of a host from 0 at its end, so that acme in acme.example.com is {%s2}", name, prefixLabels)
	}
	return func(r *http.Request) (string, error) {
		whole, err := hostname(r)
		if err != nil {
			return "", err
		}
		labels := strings.Split(whole, ".")
		if n >= len(labels) {
			return "", nil // missing
		}
		return labels[len(labels)-1-n], nil
	}, nil
}

// address is an IP address, in the form that keyfuncs.ClientIP gives it: a client has a whole /64
// of IPv6 for itself.
func address(name string) keyfuncs.Func {
	ip := keyfuncs.ClientIP()
	return func(r *http.Request) (string, error) {
		value, err := valueOf(name, r)
		if err != nil || value == "" {
			return "", err
		}
		return ip(&http.Request{RemoteAddr: net.JoinHostPort(value, "0")})
	}
}

// placeholder is any other placeholder of Caddy and its plug-ins.
func placeholder(name string) (keyfuncs.Func, error) {
	if !strings.Contains(name, ".") {
		return nil, fmt.Errorf("{%s} is not a placeholder; want one of Caddy, such as {http.request.uri.path.1}, or a source of reqlock, such as {json./order/id}", name)
	}
	if strings.HasPrefix(name, prefixRequest) && !strings.HasPrefix(name, prefixTLS) && !known(name) {
		return nil, fmt.Errorf("{%s} is not a placeholder of Caddy", name)
	}
	if !followsPath(name) {
		return func(r *http.Request) (string, error) { return valueOf(name, r) }, nil
	}
	return func(r *http.Request) (string, error) {
		// Only a path with one reading gives its parts one.
		if _, err := currentPath(r); err != nil {
			return "", err
		}
		if _, err := originalPath(r); err != nil {
			return "", err
		}
		value, err := valueOf(name, r)
		if err != nil || value == "" {
			return "", err
		}
		return decoded(value)
	}, nil
}

// known reports whether Caddy itself has a placeholder below http.request.
func known(name string) bool {
	r := httptest.NewRequest(http.MethodGet, "http://a.example/b", nil)
	ctx := context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, *r)
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{})
	r = r.WithContext(ctx)
	_, ok := caddyhttp.NewTestReplacer(r).Get(name)
	return ok
}

// followsPath reports whether a placeholder is made from a path, so that it may contain escapes of
// escapes.
func followsPath(name string) bool {
	for _, prefix := range []string{"http.request.uri", "http.request.orig_uri", "http.regexp.", "http.matchers."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

var pathValue = keyfuncs.PathValue("value")

// decoded decodes all escapes in a part of a path, like keyfuncs.PathValue.
func decoded(value string) (string, error) {
	r := &http.Request{Pattern: "/{value}"}
	r.SetPathValue("value", value)
	return pathValue(r)
}

var errNoReplacer = errors.New("reqlock: caddy: the request does not come from Caddy's HTTP server")

// valueOf returns the value of a placeholder; "": it has none, or does not exist.
func valueOf(name string, r *http.Request) (string, error) {
	replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return "", errNoReplacer
	}
	value, _ := replacer.GetString(name)
	return value, nil
}
