package ctxvalue

import (
	"context"
	"testing"
)

// A facade stands for another context, like the contexts of some frameworks.
type facade struct {
	context.Context
	other context.Context
}

type (
	facadeKey struct{}
	key       struct{ name string }
)

func (f *facade) Value(k any) any {
	if k == (facadeKey{}) {
		return f
	}
	return f.Context.Value(k)
}

func init() {
	Register(func(context.Context) context.Context { return nil })
	Register(func(ctx context.Context) context.Context {
		if f, ok := ctx.Value(facadeKey{}).(*facade); ok {
			return f.other
		}
		return nil
	})
}

// A value in the context itself counts before one in the context that it stands for.
func TestOf(t *testing.T) {
	t.Parallel()
	other := context.WithValue(context.WithValue(t.Context(), key{"a"}, "behind"), key{"b"}, "behind")
	ctx := context.WithValue(&facade{t.Context(), other}, key{"a"}, "own")
	for name, want := range map[string]any{"a": "own", "b": "behind", "c": nil} {
		if got := Of(ctx, key{name}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if Behind(ctx) != other {
		t.Error("the context behind is not found")
	}
	if got := Of(t.Context(), key{"b"}); got != nil || Behind(t.Context()) != nil {
		t.Errorf("a context that stands for none: %v", got)
	}
}
