package inspect

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// hosts are the names under which a browser may unlock. A page of another site can make its own name
// lead to this server (DNS rebinding). The browser then sees one site, and so do its headers, but
// for the name. An address cannot be taken over like this, and names of localhost never leave the
// machine, so they are always allowed.
type hosts map[string]bool

// newHosts checks Options.UnlockHosts.
func newHosts(names []string) hosts {
	all := make(hosts)
	for _, name := range names {
		host := strings.TrimSuffix(strings.ToLower(name), ".")
		if host == "" || strings.ContainsFunc(host, notInHost) {
			panic("reqlock: inspect.Options.UnlockHosts has " + strconv.Quote(name) +
				"; use the name of a host as browsers send it, without scheme and port, such as locks.example.com")
		}
		all[host] = true
	}
	return all
}

func notInHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}

// refused returns the host of a request that must not unlock: the host that it was sent to, or that
// of the page which has sent it. A proxy may have changed the first. ok is true if both are allowed.
func (h hosts) refused(r *http.Request) (host string, ok bool) {
	if !h.allows(r.Host) {
		return r.Host, false
	}
	origin := r.Header.Get("Origin")
	if origin == "" { // not from a page, or a GET
		return "", true
	}
	u, err := url.Parse(origin)
	if err != nil || !h.allows(u.Host) {
		return origin, false
	}
	return "", true
}

// allows reports whether a host, with or without port, is allowed.
func (h hosts) allows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") || h[host]
}
