package kinds

import (
	"reflect"
	"slices"
	"testing"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// The engine calls what every kind must have without a question.
func TestAll_Complete(t *testing.T) {
	t.Parallel()
	may := []string{"Unfenced", "Downgraded", "HandOver", "Unmark", "Commands", "Look", "Record"}
	for _, k := range All() {
		v := reflect.ValueOf(*k)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch v.Field(i).Kind() {
			case reflect.Func, reflect.Pointer, reflect.Slice, reflect.String:
				if v.Field(i).IsZero() && !slices.Contains(may, name) {
					t.Errorf("%s has no %s", k.Name, name)
				}
			}
		}
		if k.Look == nil != (k.Record == nil) {
			t.Errorf("%s has one of Look and Record", k.Name)
		}
		if k.Shared && k.HandOver != nil {
			t.Errorf("%s is shared, and has a hand-over", k.Name)
		}
	}
}

// Only a kind and its fenced form may share a name, because Named finds one of them.
func TestNames(t *testing.T) {
	t.Parallel()
	if got, want := Names(), []string{"lock", "fair", "fenced", "read", "write", "once", "semaphore"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q; users see them: a new one belongs in this test, docs/guides/locks.md and docs/guides/metrics.md", got, want)
	}
	for _, k := range All() {
		named := Named(k.Name)
		if named != k && named != k.Unfenced {
			t.Errorf("%q is another kind", k.Name)
		}
	}
	if k := Named("mutex"); k != nil {
		t.Errorf("there is a kind %q", k.Name)
	}
}

func TestKind_WithTokens(t *testing.T) {
	t.Parallel()
	for k, want := range map[*Kind]*Kind{Plain: Fenced, Fenced: Fenced, Fair: FencedFair, Write: FencedWrite, FencedWrite: FencedWrite, Read: nil} {
		if got := k.WithTokens(); got != want {
			t.Errorf("%s: %v", k.Name, got)
		}
	}
}

// A fenced kind grants with a counter in the slot of the lock, and is the kind without in all else.
func TestFenced(t *testing.T) {
	t.Parallel()
	draws := func(c lua.Call) bool { return slices.Contains(c.EvalSHA(), any(wire.TokenCounter("a"))) }
	for _, k := range All() {
		if got := draws(k.Acquire(Settings{}, Try{Terms: &Terms{}, Key: "a", Wire: "w"})); got != k.Fenced() {
			t.Errorf("%s: an acquire with a token: %v", k.Name, got)
		}
		if k.HandOver == nil {
			continue
		}
		if got := draws(k.HandOver(Settings{}, Hold{Terms: &Terms{}, Key: "a", Wire: "w"}, "v", 1)); got != k.Fenced() {
			t.Errorf("%s: a hand-over with a token: %v", k.Name, got)
		}
	}
}

// Reenters has a row for each pair of kinds that differ in it.
func TestKind_Reenters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		asked, held *Kind
		want        bool
	}{
		{Plain, Plain, true},
		{Plain, Fair, true},
		{Plain, Fenced, true},
		{Fenced, Plain, false},
		{Fenced, FencedFair, true},
		{FencedFair, Fair, false},
		{Plain, Write, false},
		{Read, Plain, false},
		{Read, Write, true},
		{Read, FencedWrite, true},
		{Write, Read, true}, // refused later, as an upgrade
		{FencedWrite, Read, true},
		{FencedWrite, Write, false},
		{&Once, Plain, true},
	} {
		if got := test.asked.Reenters(test.held); got != test.want {
			t.Errorf("%s enters a hold of %s: %v", test.asked.Name, test.held.Name, got)
		}
	}
}

// The fields of a lock's hash belong to the kind that made them.
func TestKind_Held(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind   *Kind
		fields []string
		fits   bool
		held   []string
	}{
		{Plain, nil, true, nil},
		{Plain, []string{"a:1"}, true, []string{"a:1"}},
		{Plain, []string{"mode", "a:1"}, false, nil},
		{Read, []string{"a:1"}, false, nil},
		{Read, []string{"mode", "a:1", "b:2"}, true, []string{"a:1", "b:2"}},
		{Read, []string{"mode", "a:1:write", "a:1"}, true, nil},
		{Write, []string{"mode", "a:1:write", "a:1"}, true, []string{"a:1:write"}},
		{Write, []string{"mode", "a:1"}, true, nil},
	} {
		if got := test.kind.Fits(test.fields); got != test.fits {
			t.Errorf("%s fits %q: %v", test.kind.Name, test.fields, got)
		}
		if got := test.kind.Held(test.fields); test.fits && !slices.Equal(got, test.held) {
			t.Errorf("%s: %q of %q, want %q", test.kind.Name, got, test.fields, test.held)
		}
	}
	if got, want := Write.Whole([]string{"a:1:write"}), []string{"a:1:write", "a:1"}; !slices.Equal(got, want) {
		t.Errorf("a writer loses %q, want %q", got, want)
	}
	if got, want := Read.Whole([]string{"a:1"}), []string{"a:1"}; !slices.Equal(got, want) {
		t.Errorf("a reader loses %q, want %q", got, want)
	}
}

// A hold of permits is handed over to who wants as many, whatever handle of the semaphore it has.
func TestKind_Succeeds(t *testing.T) {
	t.Parallel()
	other, two := Semaphore, Semaphore
	other.Declares, two.Takes = 9, 2
	for _, test := range []struct {
		wants, held *Kind
		want        bool
	}{
		{Plain, Plain, true},
		{Plain, Fair, false},
		{&other, &Semaphore, true},
		{&two, &Semaphore, false},
		{Plain, &Semaphore, false},
		{&Semaphore, Plain, false},
	} {
		if got := test.wants.Succeeds(test.held); got != test.want {
			t.Errorf("a hold of %s to a waiter for %s: %v", test.held.Name, test.wants.Name, got)
		}
	}
}

// An owner of several permits is one holder. The ids of other programs may be any bytes.
func TestSemaphore_Held(t *testing.T) {
	t.Parallel()
	ids := []string{"web.abcdefgh:7:3", "web.abcdefgh:7", "web.abcdefgh:7:2", "web.abcdefgh:70", "\x00:\xff", "c0ffee"}
	want := []string{"\x00:\xff", "c0ffee", "web.abcdefgh:7", "web.abcdefgh:70"}
	if got := Semaphore.Held(ids); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
