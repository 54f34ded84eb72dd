package adapter

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/reqlock/reqlock/keyfuncs"
)

// Bound is a request's context in which key functions find the framework's own context; see Value.
type Bound[C any] struct {
	context.Context
	c     C
	ended atomic.Bool
}

// Bind returns a context for SetRoute in which Find finds c. Call End when the handler has
// returned.
func Bind[C any](ctx context.Context, c C) *Bound[C] { return &Bound[C]{Context: ctx, c: c} }

type boundKey[C any] struct{}

// Value returns the Bound itself for the key that Find uses.
func (b *Bound[C]) Value(key any) any {
	if key == (boundKey[C]{}) {
		return b
	}
	return b.Context.Value(key)
}

// End hides the framework's context from Find, because frameworks use it again for other requests.
// A goroutine that outlives the handler does not find it.
func (b *Bound[C]) End() { b.ended.Store(true) }

// Find returns the framework's context that Bind has put into the context of r, and reports whether
// there is one. If there are several of type C, it returns the innermost.
func Find[C any](r *http.Request) (c C, ok bool) {
	b, ok := r.Context().Value(boundKey[C]{}).(*Bound[C])
	if !ok || b.ended.Load() {
		return c, false
	}
	return b.c, true
}

// Value returns the key function that an adapter exports as Value(name): get reads the value of
// that name from the framework's context. source names it in logs. The errors are those of
// keyfuncs.Value; without a Bind of this type, the error is keyfuncs.ErrNoRoute. Value panics if
// name is empty.
func Value[C any](source, name string, get func(c C, name string) any) keyfuncs.Func {
	if name == "" {
		panic(fmt.Sprintf(`reqlock: Value(""): want the name of a value of %s`, source))
	}
	value := keyfuncs.Value(fmt.Sprintf("%s value %q", source, name), func(r *http.Request) any {
		c, _ := Find[C](r) // there is one
		return get(c, name)
	})
	outside := fmt.Errorf("%w: a guard that is not of the framework's package cannot read values of %s", keyfuncs.ErrNoRoute, source)
	return func(r *http.Request) (string, error) {
		if _, ok := Find[C](r); !ok {
			return "", outside
		}
		return value(r)
	}
}
