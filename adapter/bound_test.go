package adapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reqlock/reqlock/adapter"
)

type (
	oneContext   struct{ name string }
	otherContext struct{ name string }
)

func TestBind(t *testing.T) {
	t.Parallel()
	request := func(ctx context.Context) *http.Request { return httptest.NewRequest("GET", "/", nil).WithContext(ctx) }
	if _, ok := adapter.Find[*oneContext](request(t.Context())); ok {
		t.Error("Find finds a context without Bind")
	}
	type key struct{}
	outer := adapter.Bind(context.WithValue(t.Context(), key{}, "kept"), &oneContext{"outer"})
	other := adapter.Bind(outer, &otherContext{"other"})
	inner := adapter.Bind(other, &oneContext{"inner"})
	derived, cancel := context.WithCancel(inner)
	defer cancel()
	r := request(derived)
	if c, ok := adapter.Find[*oneContext](r); !ok || c.name != "inner" {
		t.Errorf("Find: %v, %v; want the inner context", c, ok)
	}
	if c, ok := adapter.Find[*otherContext](r); !ok || c.name != "other" {
		t.Errorf("Find: %v, %v; want the context of the other type", c, ok)
	}
	if got := r.Context().Value(key{}); got != "kept" {
		t.Errorf("the value of the outer context is %v", got)
	}
	inner.End()
	if c, ok := adapter.Find[*oneContext](r); ok || c != nil {
		t.Errorf("Find after End: %v, %v", c, ok)
	}
	if c, ok := adapter.Find[*oneContext](request(outer)); !ok || c.name != "outer" {
		t.Errorf("Find further out: %v, %v", c, ok)
	}
}
