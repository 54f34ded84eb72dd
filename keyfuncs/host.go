package keyfuncs

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Host returns the host that the request is for, as the client sent it. A client can send any host,
// so check in the server which hosts it serves.
//
// Names are in lower case and without a trailing dot; international names stay in letters or in
// xn--; IPv6 addresses are in brackets and in their shortest form. A port follows, except for 80
// and 443, because the scheme is unknown behind a proxy.
//
// A request without a host, as HTTP/1.0 allows, is [ErrMissing]; a malformed host is [ErrInvalid].
func Host() Func {
	refuse := refusalsOf("the host")
	malformed := newError(ErrInvalid, "the host is malformed")
	return func(r *http.Request) (string, error) {
		if r.Host == "" {
			return "", refuse.missing
		}
		if !utf8.ValidString(r.Host) {
			return "", refuse.notUTF8
		}
		name, port, ok := splitHost(r.Host)
		if !ok {
			return "", malformed
		}
		if port != "" {
			name += ":" + port
		}
		return name, nil
	}
}

// splitHost returns both parts in canonical form; 80 and 443 become "".
func splitHost(host string) (name, port string, ok bool) {
	if address, found := strings.CutPrefix(host, "["); found {
		address, port, found = strings.Cut(address, "]")
		if port != "" && port[0] != ':' {
			return "", "", false
		}
		ip, err := netip.ParseAddr(address)
		if !found || err != nil || !ip.Is6() || ip.Zone() != "" {
			return "", "", false
		}
		name, port = "["+ip.String()+"]", strings.TrimPrefix(port, ":")
	} else {
		name, port, _ = strings.Cut(host, ":")
		if name, ok = canonicalName(name); !ok {
			return "", "", false
		}
	}
	port, ok = canonicalPort(port)
	return name, port, ok
}

func canonicalName(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && r != '_' && !unicode.In(r, unicode.Letter, unicode.Mark, unicode.Digit)
		}) {
			return "", false
		}
	}
	return name, true
}

func canonicalPort(port string) (string, bool) {
	if port == "" { // "example.com:" means the same as "example.com"
		return "", true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || n == 0:
		return "", false
	case n == 80 || n == 443:
		return "", true
	}
	return strconv.FormatUint(n, 10), true
}
