package delegation

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Config says which calls of a client carry tokens, and for whom. With the zero value none does.
type Config struct {
	// Hosts has the audience of each host, as in the URL of a call: host or host:port, in lower
	// case. Calls to other hosts carry no token.
	Hosts map[string]string
	// Audience says in place of Hosts whom the token of a call is for. "": it carries none. It must
	// not trust what a client chose, such as a host from a webhook.
	Audience func(*http.Request) string
}

// Check returns an error if both Hosts and Audience are set, if a host is none, or if an audience
// of Hosts cannot be one.
func (c Config) Check() error {
	if c.Hosts != nil && c.Audience != nil {
		return errors.New("reqlock: delegation: Config.Hosts and Config.Audience are both set; set one")
	}
	for _, host := range slices.Sorted(maps.Keys(c.Hosts)) {
		if u, err := url.Parse("//" + host); err != nil || host == "" || u.Host != host || strings.ToLower(host) != host {
			return fmt.Errorf("reqlock: delegation: Config.Hosts has %q: want host or host:port, in lower case", host)
		}
		if reason := refuseAudience(c.Hosts[host]); reason != "" {
			return fmt.Errorf("reqlock: delegation: Config.Hosts[%q] %s", host, reason)
		}
	}
	return nil
}

// AudienceOf returns whom the token of a call is for, or an empty string if the call carries none.
// A call that follows redirects carries none once one of them has led to another host or scheme.
func (c Config) AudienceOf(r *http.Request) string {
	if redirectedAway(r) {
		return ""
	}
	if c.Audience != nil {
		return c.Audience(r)
	}
	return c.Hosts[strings.ToLower(r.URL.Host)]
}

// redirectedAway reports whether any redirect before r has led to another host or scheme.
func redirectedAway(r *http.Request) bool {
	for r.Response != nil && r.Response.Request != nil {
		from := r.Response.Request
		if from.URL.Scheme != r.URL.Scheme || !strings.EqualFold(from.URL.Host, r.URL.Host) {
			return true
		}
		r = from
	}
	return false
}
