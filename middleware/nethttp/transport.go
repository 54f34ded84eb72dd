package httplock

import (
	"net/http"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/delegation"
)

// Transport returns a RoundTripper that lets the services of cfg enter the locks of the code that calls
// them. A request whose context comes from leases gets the header Reqlock-Delegation with a token for
// each, made for the audience of the destination; see core.Delegation. Pass on the context of the
// handler, or Lease.Context. Other destinations get none, and a redirect to another host gets none
// either. RoundTrip fails if the leases cannot be delegated.
//
// base sends the requests. nil: http.DefaultTransport. Transport panics on a Config that can never
// work.
func Transport(base http.RoundTripper, cfg delegation.Config) http.RoundTripper {
	if err := cfg.Check(); err != nil {
		panic(err)
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{base, cfg}
}

type transport struct {
	base http.RoundTripper
	cfg  delegation.Config
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	audience := t.cfg.AudienceOf(r)
	if audience == "" {
		return t.base.RoundTrip(r)
	}
	tokens, err := core.Delegation(r.Context(), audience)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // RoundTrip must, also when it fails
		}
		return nil, err
	}
	if tokens != "" {
		r = r.Clone(r.Context()) // RoundTrip must not change the request
		r.Header.Set(delegation.Header, tokens)
	}
	return t.base.RoundTrip(r)
}
