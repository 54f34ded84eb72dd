package routes

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A field is one member of an object T.
type field[T any] struct {
	name, about string
	required    bool
	schema      map[string]any
	read        func(*T, *Node) []*Error
}

// of is a field that is read into a variable.
func of[T, V any](name, about string, k kind[V], variable func(*T) *V) field[T] {
	return field[T]{name: name, about: about, schema: k.schema, read: func(t *T, n *Node) []*Error {
		value, mistake := k.read(name, n)
		if mistake != nil {
			return []*Error{mistake}
		}
		*variable(t) = value
		return nil
	}}
}

func (f field[T]) must() field[T] {
	f.required = true
	return f
}

// readObject reads an object into t, and returns everything that is wrong with it. what is what a
// person calls the object.
func readObject[T any](what string, fields []field[T], t *T, n *Node) (mistakes []*Error) {
	if n.Kind != Object {
		return []*Error{wrongKind(what, n, "an object")}
	}
	seen := make(map[string]Place)
	for _, member := range n.Members {
		if before, twice := seen[member.Name]; twice {
			mistakes = append(mistakes, errorAt(member.Place, "%s is given twice, first in line %d; remove one", member.Name, before.Line))
			continue
		}
		seen[member.Name] = member.Place
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == member.Name })
		if i < 0 {
			mistakes = append(mistakes, errorAt(member.Place, "%s has no field %q; want %s", what, member.Name, nearest(member.Name, fields)))
			continue
		}
		mistakes = append(mistakes, fields[i].read(t, member.Value)...)
	}
	for _, f := range fields {
		if _, given := seen[f.name]; f.required && !given {
			mistakes = append(mistakes, errorAt(n.Place, "%s lacks %s", what, f.name))
		}
	}
	return mistakes
}

// nearest names the field that name may mean, or all of them.
func nearest[T any](name string, fields []field[T]) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		if a, b := plain(f.name), plain(name); a == b || strings.HasPrefix(b, a) || len(b) > 2 && strings.HasPrefix(a, b) || oneSlip(a, b) {
			return f.name
		}
		if f.name != "$schema" {
			names = append(names, f.name)
		}
	}
	return "one of " + strings.Join(names, ", ")
}

// oneSlip reports whether b is a with one letter left out, added, or replaced, or with two
// neighbors swapped.
func oneSlip(a, b string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b)) == 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}

func wrongKind(name string, n *Node, want string) *Error {
	given := n.Kind.String()
	if n.Text != "" {
		given = strconv.Quote(n.Text)
		if n.Kind != String {
			given = n.Text
		}
	}
	return errorAt(n.Place, "%s is %s; want %s", name, given, want)
}

// A kind reads values of one type.
type kind[V any] struct {
	schema map[string]any
	read   func(name string, n *Node) (V, *Error)
}

func schemaOf(jsonType string, more ...map[string]any) map[string]any {
	schema := map[string]any{"type": jsonType}
	for _, m := range more {
		maps.Copy(schema, m)
	}
	return schema
}

var text = kind[string]{schemaOf("string", map[string]any{"minLength": 1}), func(name string, n *Node) (string, *Error) {
	if n.Kind != String || n.Text == "" {
		return "", wrongKind(name, n, "a text")
	}
	return n.Text, nil
}}

var texts = listOf(text, "a list of texts")

var aMethod = regexp.MustCompile(`^[A-Z]+$`)

var method = kind[string]{schemaOf("string", map[string]any{"pattern": aMethod.String()}), func(name string, n *Node) (string, *Error) {
	if n.Kind != String || !aMethod.MatchString(n.Text) {
		return "", wrongKind(name, n, "a method in upper case, such as POST")
	}
	return n.Text, nil
}}

var methods = listOf(method, "a list of methods")

var aHeader = regexp.MustCompile("^[!#$%&'+.^_`|~0-9A-Za-z-]+$")

var headers = listOf(kind[string]{schemaOf("string", map[string]any{"pattern": aHeader.String()}), func(name string, n *Node) (string, *Error) {
	if n.Kind != String || !aHeader.MatchString(n.Text) {
		return "", wrongKind(name, n, "the name of a header, such as Accept-Language")
	}
	return n.Text, nil
}}, "a list of headers")

func listOf[V any](of kind[V], want string) kind[[]V] {
	schema := schemaOf("array", map[string]any{"items": of.schema, "minItems": 1})
	return kind[[]V]{schema, func(name string, n *Node) (values []V, mistake *Error) {
		if n.Kind != List || len(n.Items) == 0 {
			return nil, wrongKind(name, n, want)
		}
		for _, item := range n.Items {
			value, mistake := of.read(name, item)
			if mistake != nil {
				return nil, mistake
			}
			values = append(values, value)
		}
		return values, nil
	}}
}

func oneOf(names ...string) kind[string] {
	want := either(names)
	return kind[string]{schemaOf("string", map[string]any{"enum": names}), func(name string, n *Node) (string, *Error) {
		if n.Kind != String || !slices.Contains(names, n.Text) {
			return "", wrongKind(name, n, want)
		}
		return n.Text, nil
	}}
}

var boolean = kind[bool]{schemaOf("boolean"), func(name string, n *Node) (bool, *Error) {
	if n.Kind != Bool {
		return false, wrongKind(name, n, "true or false, without quotes")
	}
	return n.Text == "true", nil
}}

var bytesOf = whole[int64](0, math.MaxInt64, "a number of bytes")

var number = whole[int](0, math.MaxInt32, "a number, or 0 for no bound")

var waiters = whole[int](-1, math.MaxInt32, wantWaiters)

// limit reads a number of requests, of which 1 is none.
var limit = kind[int]{schemaOf("integer", map[string]any{"minimum": 0, "not": map[string]any{"const": 1}}), func(name string, n *Node) (int, *Error) {
	value, mistake := whole[int](0, math.MaxInt32, wantLimit).read(name, n)
	if value == 1 {
		mistake = wrongKind(name, n, wantLimit)
	}
	return value, mistake
}}

func whole[V int | int64](least, most int64, want string) kind[V] {
	return kind[V]{schemaOf("integer", map[string]any{"minimum": least}), func(name string, n *Node) (V, *Error) {
		number, err := strconv.ParseInt(n.Text, 10, 64)
		if n.Kind != Number || err != nil || number < least || number > most {
			return 0, wrongKind(name, n, want)
		}
		return V(number), nil
	}}
}

var (
	duration = durationOf(0, math.MaxInt64, wantDuration)
	lease    = durationOf(leastLease, math.MaxInt64, wantLease)
	patience = durationOf(time.Millisecond, math.MaxInt64, wantPatience)
	keep     = durationOf(time.Millisecond, time.Hour, wantKeep)
	stale    = durationOf(time.Millisecond, time.Hour, wantStale)
)

// durationOf reads durations from least to most, and 0.
func durationOf(least, most time.Duration, want string) kind[Duration] {
	schema := map[string]any{"anyOf": []any{
		schemaOf("string", map[string]any{"pattern": `^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`}),
		map[string]any{"const": 0},
	}}
	return kind[Duration]{schema, func(name string, n *Node) (Duration, *Error) {
		d, err := time.ParseDuration(n.Text)
		if n.Kind != String && (n.Kind != Number || n.Text != "0") || err != nil || d < 0 || d != 0 && d < least || d > most {
			return 0, wrongKind(name, n, want)
		}
		return Duration(d), nil
	}}
}

// orOff reads durations as of does, and the number -1.
func orOff(of kind[Duration], want string) kind[Duration] {
	schema := map[string]any{"anyOf": []any{of.schema, map[string]any{"const": -1}}}
	return kind[Duration]{schema, func(name string, n *Node) (Duration, *Error) {
		if n.Kind == Number && n.Text == "-1" {
			return -1, nil
		}
		d, mistake := of.read(name, n)
		if mistake != nil {
			mistake = wrongKind(name, n, want)
		}
		return d, mistake
	}}
}

// sorted sorts mistakes by their place.
func sorted(mistakes []*Error) []*Error {
	slices.SortStableFunc(mistakes, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return mistakes
}
