package tutorial

import (
	"net/http"
	"net/url"
	"strings"
)

// A small framework of the usual kind: handlers get a context of the framework's own, and
// middleware wraps them. The router hands out the values of its wildcards, {name} and {name...}.

type Context struct {
	Writer  http.ResponseWriter
	Request *http.Request
	Pattern string   // of the matched route; "": none
	Names   []string // of its wildcards
	Values  []string
	set     map[string]any
}

type (
	Handler    func(c *Context)
	Middleware func(next Handler) Handler
)

func (c *Context) Param(name string) string {
	for i := range c.Names {
		if c.Names[i] == name {
			return c.Values[i]
		}
	}
	return ""
}

func (c *Context) Set(name string, value any) {
	if c.set == nil {
		c.set = make(map[string]any)
	}
	c.set[name] = value
}

func (c *Context) Get(name string) any { return c.set[name] }

type route struct {
	method, pattern string
	handler         Handler
}

type Router struct{ routes []route }

func (router *Router) Handle(method, pattern string, h Handler, middleware ...Middleware) {
	for i := len(middleware) - 1; i >= 0; i-- {
		h = middleware[i](h)
	}
	router.routes = append(router.routes, route{method, pattern, h})
}

func (router *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, route := range router.routes {
		names, values, ok := match(route.pattern, r.URL.EscapedPath())
		if ok && (route.method == "" || route.method == r.Method) {
			route.handler(&Context{Writer: w, Request: r, Pattern: route.pattern, Names: names, Values: values})
			return
		}
	}
	http.NotFound(w, r)
}

func match(pattern, path string) (names, values []string, ok bool) {
	parts, segments := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, part := range parts {
		name, isWildcard := strings.CutPrefix(strings.TrimSuffix(part, "}"), "{")
		if i >= len(segments) {
			return nil, nil, false
		}
		segment := segments[i]
		name, isRest := strings.CutSuffix(name, "...")
		if isRest {
			segment, segments = strings.Join(segments[i:], "/"), segments[:i+1]
		}
		value, err := url.PathUnescape(segment)
		if err != nil || value == "" && i > 0 && isWildcard && !isRest || !isWildcard && value != part {
			return nil, nil, false
		}
		if isWildcard {
			names, values = append(names, name), append(values, value)
		}
	}
	return names, values, len(parts) == len(segments)
}
