package delegation

import (
	"strings"
	"testing"
)

func TestService_Check(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for _, s := range []Service{{}, {k, "billing"}, {k, strings.Repeat("a", 64)}, {k, "https://billing.internal:8443/v1"}} {
		if err := s.Check(); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
	for want, s := range map[string]Service{
		"is set without Service.Keys":            {nil, "billing"},
		"is empty: want the name of a service":   {k, ""},
		"has 65 bytes, want at most 64":          {k, strings.Repeat("a", 65)},
		`"a, b": want visible ASCII without ','`: {k, "a, b"},
	} {
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), "reqlock: delegation: Service.Name "+want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
