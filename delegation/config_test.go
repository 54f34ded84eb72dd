package delegation

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestConfig_Check(t *testing.T) {
	t.Parallel()
	all := func(*http.Request) string { return "all" }
	for _, c := range []Config{{}, {Audience: all}, {Hosts: map[string]string{"billing": "b", "billing:8080": "b", "[::1]:80": "b", "10.0.0.1": "c"}}} {
		if err := c.Check(); err != nil {
			t.Errorf("%v: %v", c.Hosts, err)
		}
	}
	for want, c := range map[string]Config{
		"Config.Hosts and Config.Audience are both set":                 {map[string]string{}, all},
		`Config.Hosts has "": want host or host:port, in lower case`:    {Hosts: map[string]string{"": "b"}},
		`Config.Hosts has "Billing": want host`:                         {Hosts: map[string]string{"Billing": "b"}},
		`Config.Hosts has "http://billing": want host`:                  {Hosts: map[string]string{"http://billing": "b"}},
		`Config.Hosts has "billing/v1": want host`:                      {Hosts: map[string]string{"billing/v1": "b"}},
		`Config.Hosts has "user@billing": want host`:                    {Hosts: map[string]string{"user@billing": "b"}},
		`Config.Hosts has "billing:http": want host`:                    {Hosts: map[string]string{"billing:http": "b"}},
		`Config.Hosts["billing"] is empty: want the name of a service`:  {Hosts: map[string]string{"billing": ""}},
		`Config.Hosts["billing"] "a,b": want visible ASCII without ','`: {Hosts: map[string]string{"a": "a", "billing": "a,b"}},
	} {
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), "reqlock: delegation: "+want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestConfig_AudienceOf(t *testing.T) {
	t.Parallel()
	hosts := Config{Hosts: map[string]string{"billing": "one", "billing:8080": "two"}}
	byPath := Config{Audience: func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }}
	for _, test := range []struct {
		config    Config
		url, want string
	}{
		{hosts, "http://billing/x", "one"},
		{hosts, "https://billing/x", "one"},
		{hosts, "http://BILLING/x", "one"},
		{hosts, "http://billing:8080/x", "two"},
		{hosts, "http://billing:80/x", ""},
		{hosts, "http://billing.evil.example/x", ""},
		{hosts, "http://billing@evil.example/", ""},
		{hosts, "http://evil.example/billing", ""},
		{byPath, "http://any/orders", "orders"},
		{byPath, "http://any/", ""},
		{Config{}, "http://billing/x", ""},
	} {
		r, err := http.NewRequest(http.MethodGet, test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "billing" // what the call says to the server is not where it goes
		if got := test.config.AudienceOf(r); got != test.want {
			t.Errorf("%s: %q, want %q", test.url, got, test.want)
		}
	}
}

// redirects is a network in which each URL leads to the next one. It notes the audience of each
// call.
type redirects struct {
	config    Config
	next      map[string]string
	audiences []string
}

func (n *redirects) RoundTrip(r *http.Request) (*http.Response, error) {
	n.audiences = append(n.audiences, n.config.AudienceOf(r))
	w := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}
	if to := n.next[r.URL.String()]; to != "" {
		w.StatusCode = http.StatusTemporaryRedirect
		w.Header.Set("Location", to)
	}
	return w, nil
}

// A service that redirects a call cannot send its token elsewhere, nor to the same place without
// TLS, nor by way of another host.
func TestConfig_AudienceOf_Redirects(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		way  []string
		want []string
	}{
		"one host":        {[]string{"https://b/1", "https://b/2", "https://B/3"}, []string{"b", "b", "b"}},
		"another host":    {[]string{"https://b/1", "https://c/1"}, []string{"b", ""}},
		"another port":    {[]string{"https://b/1", "https://b:444/1"}, []string{"b", ""}},
		"without TLS":     {[]string{"https://b/1", "http://b/1"}, []string{"b", ""}},
		"there and on":    {[]string{"https://b/1", "https://c/1", "https://c/2"}, []string{"b", "", ""}},
		"there and back":  {[]string{"https://b/1", "https://c/1", "https://b/2", "https://b/3"}, []string{"b", "", "", ""}},
		"from elsewhere":  {[]string{"https://evil/1", "https://b/1"}, []string{"", ""}},
		"without a token": {[]string{"https://evil/1", "https://evil/2"}, []string{"", ""}},
	} {
		of := map[string]string{"b": "b", "c": "c", "b:444": "d"}
		for kind, config := range map[string]Config{
			"hosts":    {Hosts: of},
			"function": {Audience: func(r *http.Request) string { return of[strings.ToLower(r.URL.Host)] }},
		} {
			n := &redirects{config: config, next: make(map[string]string)}
			for i, to := range test.way[1:] {
				n.next[test.way[i]] = to
			}
			response, err := (&http.Client{Transport: n}).Post(test.way[0], "", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if !slices.Equal(n.audiences, test.want) {
				t.Errorf("%s by %s: %q, want %q", name, kind, n.audiences, test.want)
			}
		}
	}
}
