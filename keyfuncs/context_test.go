package keyfuncs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

type userKey struct{}

func TestContext(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		value any
		want  answer
	}{
		"none":              {nil, answer{kind: ErrMissing, text: "context value keyfuncs.userKey is missing"}},
		"string":            {"u-42", answer{key: "u-42"}},
		"integer":           {42, answer{key: "42"}},
		"Stringer":          {netip.MustParseAddr("192.0.2.1"), answer{key: "192.0.2.1"}},
		"empty":             {"", answer{kind: ErrMissing, text: "context value keyfuncs.userKey is empty"}},
		"empty Stringer":    {&strings.Builder{}, answer{kind: ErrMissing, text: "context value keyfuncs.userKey is empty"}},
		"control character": {"u\n", answer{kind: ErrInvalid, text: "context value keyfuncs.userKey has control characters in it"}},
		"not UTF-8":         {"u\xff", answer{kind: ErrInvalid, text: "context value keyfuncs.userKey is not valid UTF-8"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := get("/")
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, test.value))
			key, err := Context(userKey{})(r)
			test.want.check(t, key, err)
		})
	}
}

func TestContextOfAnotherType(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{"float64": 42.0, "[]string": []string{"42"}} {
		r := get("/")
		r = r.WithContext(context.WithValue(r.Context(), userKey{}, value))
		key, err := Context(userKey{})(r)
		if text := "reqlock: keyfuncs: context value keyfuncs.userKey is of type " + want + "; want a string, an integer or a fmt.Stringer"; key != "" || err == nil || err.Error() != text {
			t.Errorf("%q, %v; want the error %q", key, err, text)
		}
		if _, ok := Detail(err); ok || errors.Is(err, ErrMissing) || errors.Is(err, ErrInvalid) {
			t.Errorf("%v is the program's mistake, and none of the client's business", err)
		}
	}
}

func TestContextKeys(t *testing.T) {
	t.Parallel()
	type number int
	for want, key := range map[string]any{`"user"`: "user", "keyfuncs.number": number(1), "*int": new(int)} {
		_, err := Context(key)(get("/"))
		answer{kind: ErrMissing, text: fmt.Sprintf("context value %s is missing", want)}.check(t, "", err)
	}
}
