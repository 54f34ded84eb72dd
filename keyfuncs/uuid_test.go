package keyfuncs

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
)

const aUUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"

// One UUID has one key, however a client spells it.
func TestUUID(t *testing.T) {
	t.Parallel()
	fn := UUID(Query("id"))
	for _, spelling := range []string{
		aUUID, strings.ToUpper(aUUID), "6F9619ff-8b86-d011-b42d-00c04fc964fF", "urn:uuid:" + aUUID, "URN:UUID:" + strings.ToUpper(aUUID),
		"{" + aUUID + "}", strings.ReplaceAll(aUUID, "-", ""), strings.ToUpper(strings.ReplaceAll(aUUID, "-", "")),
	} {
		key, err := fn(get("/?id=" + spelling))
		answer{key: aUUID}.check(t, key, err)
	}
	key, err := fn(get("/?id=" + uuid.Nil.String()))
	answer{key: uuid.Nil.String()}.check(t, key, err)
}

func TestUUID_Refused(t *testing.T) {
	t.Parallel()
	fn := UUID(Query("id"))
	for _, other := range []string{
		"42", aUUID[1:], aUUID + "0", aUUID[:35] + "g", "%20" + aUUID, aUUID + "%20", "%20" + aUUID + "%20", "(" + aUUID + ")", "{" + aUUID, "{{" + aUUID + "}}",
		"urn:uuid:{" + aUUID + "}", "urn:guid:" + aUUID, strings.ReplaceAll(aUUID, "-", "_"), "6f9619ff8b86-d011-b42d-00c04fc964ff-", "%EF%BC%96" + aUUID[1:],
	} {
		if key, err := fn(get("/?id=" + other)); key != "" || !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), other) {
			t.Errorf("%s: key %q, error %v; want ErrInvalid", other, key, err)
		}
	}
	if _, err := fn(get("/")); !errors.Is(err, ErrMissing) {
		t.Errorf("error %v, want that of the source", err)
	}
	if _, err := UUID(func(*http.Request) (string, error) { return "", ErrSkip })(get("/")); err != ErrSkip {
		t.Errorf("error %v, want ErrSkip", err)
	}
}

func TestUUID_InTemplates(t *testing.T) {
	t.Parallel()
	text := "order:{path.id:uuid}:{query.t}"
	r := get("/?t=x")
	r.Pattern = "/{id}"
	r.SetPathValue("id", "%7B"+strings.ToUpper(aUUID)+"%7D")
	key, err := Template(text)(r)
	answer{key: "order:" + aUUID + ":x"}.check(t, key, err)

	host, err := ParseTemplateWith("{user:uuid}", func(name string) (Func, error) {
		if name != "user" {
			return nil, nil
		}
		return Const(strings.ToUpper(aUUID)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	key, err = host(r)
	answer{key: aUUID}.check(t, key, err)

	for wrong, want := range map[string]string{
		"{path.id:UUID}":      "column 7",
		"{path.id:int}":       "column 7",
		"{path.:uuid}":        "column 7",
		"{path.id:uuid:uuid}": "",
		"{:uuid}":             `no source ""`,
		"{user:uuid}":         `no source "user"`,
	} {
		if _, err := ParseTemplate(wrong); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
}

// FuzzUUID: a value has the key of the UUID that google/uuid reads, and that key is its own key.
func FuzzUUID(f *testing.F) {
	for _, seed := range []string{aUUID, "{" + aUUID + "}", "(" + aUUID + ")", "urn:uuid:" + aUUID, strings.ReplaceAll(aUUID, "-", ""), "", " " + aUUID} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := canonicalUUID(value)
		if err != nil {
			if key != "" || !errors.Is(err, ErrInvalid) || uuid.Validate(value) == nil {
				t.Errorf("%q: %q, %v", value, key, err)
			}
			return
		}
		if id, err := uuid.Parse(value); err != nil || id.String() != key || key != strings.ToLower(key) || len(key) != 36 {
			t.Errorf("%q: %q, want %s (%v)", value, key, id, err)
		}
		if again, err := canonicalUUID(key); again != key || err != nil {
			t.Errorf("%q: the key of %q is %q, %v", value, key, again, err)
		}
	})
}
