package caddylock

import "testing"

// A peer is trusted by the address of its connection, in any spelling. What has none is not.
func TestDelegating_Trusts(t *testing.T) {
	t.Parallel()
	d := Delegating{TrustedDelegators: []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "fe80::1"}}
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	for peer, want := range map[string]bool{
		"10.1.2.3:80":             true,
		"192.0.2.7:1":             true,
		"[::ffff:10.1.2.3]:80":    true,
		"[2001:db8::1]:443":       true,
		"[fe80::1%eth0]:443":      true,
		"11.0.0.1:80":             false,
		"192.0.2.8:1":             false,
		"[::ffff:11.0.0.1]:80":    false,
		"[2001:db9::1]:443":       false,
		"127.0.0.1:1":             false,
		"10.1.2.3":                false,
		"10.1.2.3, 10.1.2.3:80":   false,
		"localhost:80":            false,
		"@":                       false,
		"/run/caddy.sock":         false,
		"":                        false,
		"[::ffff:10.1.2.3%a]:bad": false,
	} {
		if got := d.trusts(peer); got != want {
			t.Errorf("trusts(%q) = %t, want %t", peer, got, want)
		}
	}
	if new(Delegating).trusts("10.1.2.3:80") {
		t.Error("without trusted_delegators, somebody is trusted")
	}
	private := Delegating{TrustedDelegators: []string{"private_ranges"}}
	if err := private.check(); err != nil {
		t.Fatal(err)
	}
	if !private.trusts("192.168.1.1:1") || !private.trusts("[fd00::1]:1") || private.trusts("8.8.8.8:1") {
		t.Errorf("private_ranges are %v", private.delegators)
	}
}
