package keyfuncs

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns the address of the client as the trusted proxies see it. An IPv6 address is
// reduced to its /64, such as "2001:db8:1:2::/64", because one host can use any address in it. An
// IPv4 address mapped to IPv6 is an IPv4 address. Ports and zones are removed.
//
// The address is that of the connection, [http.Request.RemoteAddr], unless it is trusted. If it is,
// ClientIP reads X-Forwarded-For from its end, over all trusted addresses, to the first that is
// not. If all are trusted, it takes the first in the header, or without the header that of the
// connection. A client can only add addresses before those, which changes nothing. Trust only the
// addresses of your proxies: a client with a trusted address can pass for any other.
//
// Anything else on the way, such as "unknown" or an empty element, is [ErrInvalid], and so is a
// connection without an address, such as a Unix socket: with one key for all such clients, one
// could lock out the rest. ClientIP ignores other headers, such as Forwarded and X-Real-IP.
//
// ClientIP panics if a prefix is invalid. Bits beyond the length of a prefix do not matter.
func ClientIP(trusted ...netip.Prefix) Func {
	proxies := make(prefixes, len(trusted))
	for i, prefix := range trusted {
		if !prefix.IsValid() {
			misuse(fmt.Sprintf("ClientIP, prefix %d of %d", i+1, len(trusted)), "invalid; want one such as netip.MustParsePrefix(\"10.0.0.0/8\")")
		}
		proxies[i] = unmapPrefix(prefix).Masked()
	}
	unknown := newError(ErrInvalid, "the client's address is unknown: the connection has none")
	malformed := newError(ErrInvalid, "the X-Forwarded-For header, which should hold the client's address, is malformed")
	return func(r *http.Request) (string, error) {
		peer, ok := parseAddress(r.RemoteAddr)
		if !ok {
			return "", unknown
		}
		client, ok := proxies.client(peer, r.Header["X-Forwarded-For"])
		if !ok {
			return "", malformed
		}
		return clientKey(client), nil
	}
}

// prefixes are the addresses of trusted proxies.
type prefixes []netip.Prefix

// client walks from the peer towards the client, over the addresses that the proxies appended.
func (p prefixes) client(peer netip.Addr, lines []string) (client netip.Addr, ok bool) {
	client = peer
	for _, line := range slices.Backward(lines) {
		for more := true; more; {
			if !p.contain(client) {
				return client, true
			}
			hop := line
			if i := strings.LastIndexByte(line, ','); i >= 0 {
				line, hop = line[:i], line[i+1:]
			} else {
				more = false
			}
			if client, ok = parseAddress(strings.Trim(hop, " \t")); !ok {
				return client, false
			}
		}
	}
	return client, true
}

func (p prefixes) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// parseAddress parses an address with or without a port, and an IPv6 address also in brackets.
func parseAddress(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(s)
		addr = withPort.Addr()
	}
	if err != nil {
		bare, opened := strings.CutPrefix(s, "[")
		bare, closed := strings.CutSuffix(bare, "]")
		addr, err = netip.ParseAddr(bare)
		if !opened || !closed || !addr.Is6() {
			return netip.Addr{}, false
		}
	}
	return addr.WithZone("").Unmap(), err == nil
}

func clientKey(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}

// unmapPrefix turns a prefix of mapped IPv4 addresses, ::ffff:10.0.0.0/104, into one of IPv4
// addresses.
func unmapPrefix(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}
