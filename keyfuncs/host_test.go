package keyfuncs

import "testing"

func TestHost(t *testing.T) {
	t.Parallel()
	malformed := answer{kind: ErrInvalid, text: "the host is malformed"}
	tests := map[string]answer{
		"example.com":             {key: "example.com"},
		"EXAMPLE.com":             {key: "example.com"},
		"example.com.":            {key: "example.com"},
		"example.com:80":          {key: "example.com"},
		"example.com:443":         {key: "example.com"},
		"example.com.:0443":       {key: "example.com"},
		"example.com:":            {key: "example.com"},
		"example.com:8080":        {key: "example.com:8080"},
		"Example.com.:08080":      {key: "example.com:8080"},
		"localhost":               {key: "localhost"},
		"a_b-c.1":                 {key: "a_b-c.1"},
		"192.0.2.1:8080":          {key: "192.0.2.1:8080"},
		"xn--bcher-kva.example":   {key: "xn--bcher-kva.example"},
		"BÜCHER.example":          {key: "bücher.example"},
		"[2001:DB8:0::1]":         {key: "[2001:db8::1]"},
		"[2001:db8::1]:443":       {key: "[2001:db8::1]"},
		"[::1]:8080":              {key: "[::1]:8080"},
		"[::1]:":                  {key: "[::1]"},
		"":                        {kind: ErrMissing, text: "the host is missing"},
		"example.com\xff":         {kind: ErrInvalid, text: "the host is not valid UTF-8"},
		".":                       malformed,
		":80":                     malformed,
		"a..b":                    malformed,
		".a":                      malformed,
		"a.b..":                   malformed,
		"a b":                     malformed,
		"a\x00b":                  malformed,
		"a/b":                     malformed,
		"user@example.com":        malformed,
		"a,b":                     malformed,
		"%65xample.com":           malformed,
		"example.com:0":           malformed,
		"example.com:65536":       malformed,
		"example.com:-80":         malformed,
		"example.com:+80":         malformed,
		"example.com:http":        malformed,
		"example.com:80:80":       malformed,
		"::1":                     malformed,
		"[::1":                    malformed,
		"[::1]x":                  malformed,
		"[::1]80":                 malformed,
		"[fe80::1%eth0]":          malformed,
		"[192.0.2.1]":             malformed,
		"[]":                      malformed,
		"[example.com]":           malformed,
		"[::1]:80:80":             malformed,
		"xn--bcher-kva.example..": malformed,
	}
	for host, want := range tests {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			r := get("/")
			r.Host = host
			key, err := Host()(r)
			want.check(t, key, err)
			if err == nil {
				r.Host = key
				again, err := Host()(r)
				want.check(t, again, err)
			}
		})
	}
}
