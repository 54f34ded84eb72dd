package keyfuncs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func clientOf(remote string, forwarded []string, trusted ...string) (string, error) {
	r := get("/")
	r.RemoteAddr = remote
	r.Header["X-Forwarded-For"] = forwarded
	// These are ignored.
	r.Header.Set("X-Real-Ip", "198.51.100.99")
	r.Header.Set("Forwarded", "for=198.51.100.99")
	prefixes := make([]netip.Prefix, len(trusted))
	for i, prefix := range trusted {
		prefixes[i] = netip.MustParsePrefix(prefix)
	}
	return ClientIP(prefixes...)(r)
}

func TestClientIPOfTheConnection(t *testing.T) {
	t.Parallel()
	unknown := answer{kind: ErrInvalid, text: "the client's address is unknown: the connection has none"}
	for remote, want := range map[string]answer{
		"192.0.2.1:1234":               {key: "192.0.2.1"},
		"192.0.2.1":                    {key: "192.0.2.1"}, // as some middlewares leave it
		"[2001:db8:1:2:3:4:5:6]:1234":  {key: "2001:db8:1:2::/64"},
		"[2001:db8:1:2:ffff::1]:1":     {key: "2001:db8:1:2::/64"},
		"2001:db8:1:2::1":              {key: "2001:db8:1:2::/64"},
		"[2001:db8:1:3::1]:1":          {key: "2001:db8:1:3::/64"},
		"[::ffff:192.0.2.1]:1234":      {key: "192.0.2.1"},
		"[::ffff:192.0.2.1%eth0]:1234": {key: "192.0.2.1"},
		"[::1]:1234":                   {key: "::/64"},
		"[fe80::1%eth0]:1234":          {key: "fe80::/64"},
		"":                             unknown,
		"@":                            unknown,
		"/run/app.sock":                unknown,
		"pipe":                         unknown,
		"localhost:80":                 unknown,
		"192.0.2.1:":                   unknown,
		"192.0.2.1:99999":              unknown,
		"192.0.2.256:1":                unknown,
		"192.0.2.01:1":                 unknown,
		"[192.0.2.1]":                  unknown,
		"[192.0.2.1]:80":               unknown,
		"192.0.2.1%eth0":               unknown,
		" 192.0.2.1:1":                 unknown,
	} {
		t.Run(remote, func(t *testing.T) {
			t.Parallel()
			for _, trusted := range [][]string{nil, {"10.0.0.0/8"}} {
				key, err := clientOf(remote, []string{"198.51.100.1"}, trusted...)
				want.check(t, key, err)
			}
		})
	}
}

func TestClientIPBehindProxies(t *testing.T) {
	t.Parallel()
	malformed := answer{kind: ErrInvalid, text: "the X-Forwarded-For header, which should hold the client's address, is malformed"}
	client := answer{key: "203.0.113.7"}
	trusted := []string{"10.1.2.3/8", "2001:db8:ff::1/48", "::ffff:172.16.0.0/108", "0:0:0:0::/128"}
	const peer = "10.0.0.1:1234"
	tests := map[string]struct {
		peer  string
		lines []string
		want  answer
	}{
		"no header":               {peer, nil, answer{key: "10.0.0.1"}},
		"one hop":                 {peer, []string{"203.0.113.7"}, client},
		"forged":                  {peer, []string{"198.51.100.1, 203.0.113.7"}, client},
		"forged, a trusted one":   {peer, []string{"10.0.0.9, 203.0.113.7"}, client},
		"forged, garbage":         {peer, []string{"x,,\x00, unknown , 203.0.113.7"}, client},
		"two proxies":             {peer, []string{"203.0.113.7, 10.0.0.2"}, client},
		"three proxies, forged":   {peer, []string{"198.51.100.1,203.0.113.7,10.0.0.3,\t10.0.0.2 "}, client},
		"lines":                   {peer, []string{"198.51.100.1", "203.0.113.7", "10.0.0.2"}, client},
		"lines, last is farthest": {peer, []string{"203.0.113.7, 198.51.100.1", "198.51.100.2"}, answer{key: "198.51.100.2"}},
		"all trusted":             {peer, []string{"10.0.0.3, 10.0.0.2"}, answer{key: "10.0.0.3"}},
		"all trusted, lines":      {peer, []string{"10.0.0.4", "10.0.0.3, 10.0.0.2"}, answer{key: "10.0.0.4"}},
		"port":                    {peer, []string{"203.0.113.7:4711"}, client},
		"mapped":                  {peer, []string{"::ffff:203.0.113.7"}, client},
		"mapped, brackets":        {peer, []string{"[::ffff:203.0.113.7]:80"}, client},
		"mapped peer":             {"[::ffff:10.0.0.1]:1234", []string{"203.0.113.7"}, client},
		"mapped prefix":           {"172.16.0.1:1234", []string{"203.0.113.7"}, client},
		"beside mapped prefix":    {"172.32.0.1:1234", []string{"203.0.113.7"}, answer{key: "172.32.0.1"}},
		"IPv6 peer":               {"[2001:db8:ff::2]:1", []string{"203.0.113.7"}, client},
		"IPv6":                    {peer, []string{"2001:db8:1:2::3"}, answer{key: "2001:db8:1:2::/64"}},
		"IPv6, brackets":          {peer, []string{"[2001:db8:1:2::3]"}, answer{key: "2001:db8:1:2::/64"}},
		"IPv6, port":              {peer, []string{"[2001:db8:1:2::3]:80"}, answer{key: "2001:db8:1:2::/64"}},
		"IPv6, zone":              {peer, []string{"2001:db8:1:2::3%eth0"}, answer{key: "2001:db8:1:2::/64"}},
		"trusted with a zone":     {peer, []string{"203.0.113.7, 2001:db8:ff::7%eth0"}, client},
		"garbage":                 {peer, []string{"198.51.100.1, garbage"}, malformed},
		"garbage behind a proxy":  {peer, []string{"198.51.100.1, garbage, 10.0.0.2"}, malformed},
		"garbage first":           {peer, []string{"garbage, 10.0.0.2"}, malformed},
		"unknown":                 {peer, []string{"unknown"}, malformed},
		"obfuscated":              {peer, []string{"_hidden"}, malformed},
		"quoted":                  {peer, []string{`"203.0.113.7"`}, malformed},
		"empty":                   {peer, []string{""}, malformed},
		"empty element":           {peer, []string{"203.0.113.7, "}, malformed},
		"empty line":              {peer, []string{"203.0.113.7", ""}, malformed},
		"leading zeros":           {peer, []string{"203.0.113.007"}, malformed},
		"bad port":                {peer, []string{"203.0.113.7:x"}, malformed},
		"half a bracket":          {peer, []string{"[2001:db8::1"}, malformed},
		"other half":              {peer, []string{"2001:db8::1]"}, malformed},
		"brackets in brackets":    {peer, []string{"[[2001:db8::1]]"}, malformed},
		"IPv4 in brackets":        {peer, []string{"[203.0.113.7]"}, malformed},
		"peer not trusted":        {"203.0.113.7:1", []string{"198.51.100.1"}, client},
		"peer not trusted, bad":   {"203.0.113.7:1", []string{"garbage"}, client},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := clientOf(test.peer, test.lines, trusted...)
			test.want.check(t, key, err)
		})
	}
}

func TestClientIPKeepsItsPrefixes(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	fn := ClientIP(trusted...)
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0")
	r := get("/")
	r.RemoteAddr = "203.0.113.7:1"
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	key, err := fn(r)
	answer{key: "203.0.113.7"}.check(t, key, err)
}

// An untrusted client has one key whatever it writes into the header. An invalid address has none.
func FuzzClientIP(f *testing.F) {
	f.Add("192.0.2.1:1", "198.51.100.1", "10.0.0.2", uint32(0xcb007107), false)
	f.Add("10.0.0.1:1", "10.0.0.9, garbage,", "", uint32(0xcb007107), false)
	f.Add("[2001:db8:ff::1]:80", ",,\n", "x", uint32(7), true)
	f.Add("", "[", "]:80", uint32(0), true)
	f.Add("@", "%eth0", "1.2.3.4%", uint32(1<<31), false)
	f.Fuzz(func(t *testing.T, remote, forged, more string, host uint32, six bool) {
		trusted := []string{"10.0.0.0/8", "2001:db8:ff::/48"}
		for _, lines := range [][]string{nil, {forged}, {forged, more}} {
			key, err := clientOf(remote, lines, trusted...)
			switch {
			case err != nil && (key != "" || !errors.Is(err, ErrInvalid)):
				t.Fatalf("%q, %v", key, err)
			case err == nil:
				checkAddressKey(t, key)
			}
		}

		client := netip.AddrFrom4([4]byte{byte(host >> 24), byte(host >> 16), byte(host >> 8), byte(host)})
		want := client.String()
		if six {
			client = netip.MustParseAddr(fmt.Sprintf("2400:%x:%x::%x", host>>16, host&0xffff, host>>8&0xffff))
			want = netip.PrefixFrom(client, 64).Masked().String()
		}
		if netip.MustParsePrefix(trusted[0]).Contains(client) {
			return
		}
		// Each proxy appends to the line or adds a line.
		direct := netip.AddrPortFrom(client, 1).String()
		const proxy = "10.0.0.1:1234"
		for name, ask := range map[string]func() (string, error){
			"direct": func() (string, error) { return clientOf(direct, []string{forged, more}, trusted...) },
			"one proxy": func() (string, error) {
				return clientOf(proxy, []string{more, forged + ", " + client.String()}, trusted...)
			},
			"one proxy, a line": func() (string, error) { return clientOf(proxy, []string{forged, more, direct}, trusted...) },
			"two proxies": func() (string, error) {
				return clientOf("[2001:db8:ff::1]:1", []string{forged + "," + direct, "10.0.0.1"}, trusted...)
			},
		} {
			if key, err := ask(); key != want || err != nil {
				t.Errorf("%s: %s writes %q, %q: key %q, %v; want %q", name, client, forged, more, key, err, want)
			}
		}
	})
}

func checkAddressKey(t *testing.T, key string) {
	t.Helper()
	if strings.Contains(key, ":") {
		if prefix, err := netip.ParsePrefix(key); err != nil || prefix.Bits() != 64 || prefix.Masked().String() != key || prefix.Addr().Is4In6() {
			t.Errorf("key %q", key)
		}
		return
	}
	if addr, err := netip.ParseAddr(key); err != nil || addr.String() != key {
		t.Errorf("key %q", key)
	}
}
