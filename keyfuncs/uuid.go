package keyfuncs

import (
	"net/http"

	"github.com/google/uuid"
)

// UUID returns the UUID that f has found, in its canonical form: in lower case, with four hyphens.
// One UUID has one key in all the forms that [uuid.Validate] allows: in any case, after urn:uuid:,
// in braces, and as 32 digits without hyphens. The handler must parse it too, such as with
// [uuid.Parse], and not compare texts. The version does not matter, and the nil UUID is one as any
// other. Any other value, such as one with a space, is [ErrInvalid]; errors of f are returned
// unchanged.
//
// In templates, {path.id:uuid} is UUID(PathValue("id")). UUID panics if f is nil.
func UUID(f Func) Func {
	if f == nil {
		misuse("UUID(nil)", "want a Func")
	}
	return func(r *http.Request) (string, error) {
		value, err := f(r)
		if err != nil {
			return "", err
		}
		return canonicalUUID(value)
	}
}

var errNotUUID = newError(ErrInvalid, "a part of the request that should be a UUID is none")

func canonicalUUID(value string) (string, error) {
	if uuid.Validate(value) != nil { // Parse reads other texts as well
		return "", errNotUUID
	}
	id, err := uuid.Parse(value)
	if err != nil {
		return "", errNotUUID
	}
	return id.String(), nil
}
