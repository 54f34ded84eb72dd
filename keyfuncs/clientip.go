package keyfuncs

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP takes the address of the client as it is seen behind the proxies that are trusted. IPv4 addresses are taken as they are,
// and IPv6 addresses as their /64, such as "2001:db8:1:2::/64": one host has all of that to choose from. An IPv4
// address that is mapped to IPv6 is an IPv4 address; ports and zones are left out.
//
// The address is that of the connection, [http.Request.RemoteAddr], unless it is trusted. If it is, X-Forwarded-For is
// believed as far as trusted proxies have written it: from its end, over all addresses that are trusted, to the first that is
// not. If all of them are trusted it is the first of the header, and without the header that of the connection. What a
// client writes into the header comes before that, and changes nothing. Trust the addresses of your proxies and no
// others: a client with a trusted address can pass for any other.
//
// Whatever is met on the way and is no address, such as "unknown" or an empty element, is [ErrInvalid], and so is a
// connection without an address, such as a Unix socket: a key that stands for all such clients would let one of them lock
// out the rest. Other headers, Forwarded and X-Real-IP among them, are not looked at.
//
// ClientIP panics if one of the prefixes is invalid. Bits beyond the length of a prefix do not matter.
func ClientIP(trusted ...netip.Prefix) Func {
	proxies := make(prefixes, len(trusted))
	for i, prefix := range trusted {
		if !prefix.IsValid() {
			misuse(fmt.Sprintf("ClientIP, prefix %d of %d", i+1, len(trusted)), "invalid; want one such as netip.MustParsePrefix(\"10.0.0.0/8\")")
		}
		proxies[i] = unmapPrefix(prefix).Masked()
	}
	unknown := newError(ErrInvalid, "the client's address is not known: the connection has none")
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

// prefixes are those of trusted proxies.
type prefixes []netip.Prefix

// client walks from the peer towards the client, along what each proxy has put at the end of the header.
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

// parseAddress takes an address with or without a port, an IPv6 address also in brackets.
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

// unmapPrefix makes a prefix of mapped IPv4 addresses, ::ffff:10.0.0.0/104, one that contains IPv4 addresses.
func unmapPrefix(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}
