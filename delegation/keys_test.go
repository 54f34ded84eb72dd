package delegation

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// expires is when the hold of the grants in these tests ends.
var expires = time.UnixMilli(1_800_000_000_123).UTC()

func sample() Grant {
	return Grant{
		Lock:     LockIDOf("order:42"),
		Kind:     "lock",
		Owner:    "host-7.4711.abcdefgh:12",
		Fence:    1<<64 - 1,
		Expires:  expires,
		Audience: "billing",
	}
}

// secret returns a secret that differs for each n.
func secret(n byte) []byte { return bytes.Repeat([]byte{n}, shortestSecret) }

func newKeys(t testing.TB, secrets ...[]byte) *Keys {
	t.Helper()
	k, err := NewKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func mustSign(t testing.TB, k *Keys, g Grant) string {
	t.Helper()
	token, err := k.Sign(g)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Each kind, with and without a fencing token, comes back as it was signed.
func TestSign_RoundTrip(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for _, kind := range kinds[:len(kinds)-1] { // TestSign_Permits has the last
		for _, fence := range []uint64{0, 1, 1<<64 - 1} {
			g := sample()
			g.Kind, g.Fence = kind, fence
			got, err := k.Verify(mustSign(t, k, g), "billing", expires)
			if err != nil || got != g {
				t.Errorf("%+v, %v, want %+v", got, err, g)
			}
		}
	}
}

// What is beyond a millisecond is not in the token, so a token never says more time than the lease
// has.
func TestSign_WholeMilliseconds(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	g := sample()
	g.Expires = expires.Add(time.Millisecond - 1)
	if got, err := k.Verify(mustSign(t, k, g), "billing", expires); err != nil || !got.Expires.Equal(expires) {
		t.Errorf("%v, %v, want %v", got.Expires, err, expires)
	}
}

// Two tokens of one hold differ, so a log of tokens' hashes tells them apart.
func TestSign_Random(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	if a, b := mustSign(t, k, sample()), mustSign(t, k, sample()); a == b {
		t.Errorf("twice %s", a)
	}
}

// The text of a token is a contract between versions of programs: old ones must read it.
func TestVerify_KnownToken(t *testing.T) {
	t.Parallel()
	const token = "v1.AAECAwQFBgfaaDgN4CK6xyd4Lv7jxJXU__________8AAAGjGFxQewEXB2hvc3QtNy40NzExLmFiY2RlZmdoOjEyYmlsbGluZw.IjhwRLe9DdGMKlKnlsdW-nFx2dfsU7xfXLHNP7ygvgU"
	got, err := newKeys(t, secret(1)).Verify(token, "billing", expires)
	if err != nil || got != sample() {
		t.Errorf("%+v, %v, want %+v", got, err, sample())
	}
}

// A token in which any one bit is different, or which ends early or late, is refused.
func TestVerify_Forged(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1), secret(2))
	token := mustSign(t, k, sample())
	refused := func(forged string) {
		t.Helper()
		got, err := k.Verify(forged, "billing", expires)
		if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrSignature) || got != (Grant{}) {
			t.Errorf("%q: %+v, %v", forged, got, err)
		}
	}
	for i := range len(token) {
		for bit := range 8 {
			b := []byte(token)
			b[i] ^= 1 << bit
			refused(string(b))
		}
		refused(token[:i])
		refused(token[i+1:])
		refused(token[:i] + token[i+1:])
		for _, more := range []string{".", "A", "=", "\n", " ", "\x00"} {
			refused(token[:i] + more + token[i:])
		}
	}
	for _, more := range []string{".", "A", "=", "\n", " ", ", " + token, "." + token} {
		refused(token + more)
	}
}

// Texts that are no token of this version are malformed: there is no version and no algorithm that
// a token could choose.
func TestVerify_Malformed(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	token := mustSign(t, k, sample())
	payload, signature, _ := strings.Cut(strings.TrimPrefix(token, prefix), ".")
	for name, text := range map[string]string{
		"nothing":             "",
		"dots":                "v1..",
		"no version":          payload + "." + signature,
		"an older version":    "v0." + payload + "." + signature,
		"a newer version":     "v2." + payload + "." + signature,
		"upper case":          "V1." + payload + "." + signature,
		"no signature":        "v1." + payload,
		"an empty signature":  "v1." + payload + ".",
		"a short signature":   "v1." + payload + "." + signature[1:],
		"a JWT without one":   "eyJhbGciOiJub25lIn0.e30.",
		"too long":            token + strings.Repeat("A", MaxToken),
		"two tokens":          token + ", " + token,
		"line feeds, payload": "v1.\n" + payload + "." + signature,
		"line feeds, mac":     "v1." + payload + "." + signature[:42] + "\n",
		"other alphabet":      "v1.++" + payload[2:] + "." + signature,
	} {
		if got, err := k.Verify(text, "billing", expires); !errors.Is(err, ErrMalformed) || got != (Grant{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A payload that this package would not write is malformed, even with a good signature.
func TestVerify_Payload(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for name, change := range map[string]func(b []byte) []byte{
		"empty":               func([]byte) []byte { return nil },
		"too short":           func(b []byte) []byte { return b[:ownerAt-1] },
		"only the head":       func(b []byte) []byte { return b[:ownerAt] },
		"one byte less":       func(b []byte) []byte { return b[:len(b)-1] },
		"one byte more":       func(b []byte) []byte { return append(b, 'x') },
		"kind 0":              func(b []byte) []byte { b[kindAt] = 0; return b },
		"kind 7":              func(b []byte) []byte { b[kindAt] = 7; return b },
		"permits beyond all":  func(b []byte) []byte { b[kindAt] = 6; return b },
		"a longer owner":      func(b []byte) []byte { b[ownerLenAt]++; return b },
		"all audience":        func(b []byte) []byte { b[audLenAt] += b[ownerLenAt]; b[ownerLenAt] = 0; return b },
		"all owner":           func(b []byte) []byte { b[ownerLenAt] += b[audLenAt]; b[audLenAt] = 0; return b },
		"before 1970":         func(b []byte) []byte { b[expiresAt] = 0x80; return b },
		"1970":                func(b []byte) []byte { clear(b[expiresAt:kindAt]); return b },
		"a control character": func(b []byte) []byte { b[ownerAt] = '\n'; return b },
		"a comma":             func(b []byte) []byte { b[len(b)-1] = ','; return b },
		"beyond ASCII":        func(b []byte) []byte { b[len(b)-1] = 0xff; return b },
	} {
		if got, err := k.Verify(k.seal(change(sample().payload())), "billing", expires); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A token of other secrets, or for no secret at all, is refused before its payload is looked at.
func TestVerify_OtherSecrets(t *testing.T) {
	t.Parallel()
	token := mustSign(t, newKeys(t, secret(1)), sample())
	broken := newKeys(t, secret(1)).seal(nil)
	for name, k := range map[string]*Keys{"others": newKeys(t, secret(2), secret(3)), "zero": {}, "nil": nil} {
		for _, text := range []string{token, broken} {
			if _, err := k.Verify(text, "somebody else", expires.Add(time.Hour)); !errors.Is(err, ErrSignature) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A secret is replaced in three steps: the new one last, the new one first, the old one gone.
// Programs that are one step apart read each other's tokens. Two steps apart, they may not.
func TestKeys_Rotation(t *testing.T) {
	t.Parallel()
	before, after := secret(1), secret(2)
	steps := []*Keys{newKeys(t, before), newKeys(t, before, after), newKeys(t, after, before), newKeys(t, after)}
	for i, signer := range steps {
		for j, verifier := range steps {
			_, err := verifier.Verify(mustSign(t, signer, sample()), "billing", expires)
			if apart := max(i-j, j-i); apart <= 1 && err != nil || apart == 3 && !errors.Is(err, ErrSignature) {
				t.Errorf("signed in step %d, verified in step %d: %v", i, j, err)
			}
		}
	}
	var eight [][]byte
	for n := range byte(8) {
		eight = append(eight, secret(n))
	}
	for n, one := range eight {
		if _, err := newKeys(t, eight...).Verify(mustSign(t, newKeys(t, one), sample()), "billing", expires); err != nil {
			t.Errorf("secret %d of 8: %v", n+1, err)
		}
	}
}

func TestVerify_Audience(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	token := mustSign(t, k, sample())
	for _, audience := range []string{"", "billin", "billing2", "Billing", "billing ", "orders"} {
		if _, err := k.Verify(token, audience, expires); !errors.Is(err, ErrAudience) {
			t.Errorf("%q: %v", audience, err)
		}
	}
	// Who may not use the token does not learn whether it has expired.
	if _, err := k.Verify(token, "orders", expires.Add(time.Hour)); !errors.Is(err, ErrAudience) {
		t.Error(err)
	}
}

// A token is good until Skew after the lease, and not a moment longer.
func TestVerify_Expiry(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for late, want := range map[time.Duration]error{
		-time.Hour:         nil,
		0:                  nil,
		Skew - 1:           nil,
		Skew:               ErrExpired,
		Skew + time.Second: ErrExpired,
		time.Hour:          ErrExpired,
	} {
		if _, err := k.Verify(mustSign(t, k, sample()), "billing", expires.Add(late)); !errors.Is(err, want) {
			t.Errorf("%s after the lease: %v, want %v", late, err, want)
		}
	}
	far := sample()
	far.Expires = time.UnixMilli(1<<63 - 1).UTC()
	if got, err := k.Verify(mustSign(t, k, far), "billing", expires); err != nil || got != far {
		t.Errorf("the last millisecond: %+v, %v", got, err)
	}
}

// What no token can have is an error that names the field and what would be right.
func TestSign_Refuses(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for want, change := range map[string]func(g *Grant){
		`Grant.Kind "": want one of lock, fair, fenced, read, write`: func(g *Grant) { g.Kind = "" },
		`Grant.Kind "permit": want one of lock, fair`:                func(g *Grant) { g.Kind = "permit" },
		"Grant.Owner: want visible ASCII, at least one byte":         func(g *Grant) { g.Owner = "" },
		"Grant.Owner: want visible ASCII, at":                        func(g *Grant) { g.Owner = "a b" },
		"Grant.Owner, with Grant.Permit, has 129 bytes, want":        func(g *Grant) { g.Owner = strings.Repeat("o", 129) },
		"Grant.Owner, with Grant.Permit, has 130 bytes": func(g *Grant) {
			*g = permits(g.Permits)
			g.Owner, g.Permit = strings.Repeat("o", 64), strings.Repeat("p", 65)
		},
		`Grant.Permits 1 and Grant.Permit "": want none for the ki`: func(g *Grant) { g.Permits = 1 },
		`Grant.Permits 0 and Grant.Permit "p": want none for the k`: func(g *Grant) { g.Permit = "p" },
		"Grant.Permits 0: want 1 to 2^31-1 for a semaphore":         func(g *Grant) { *g = permits(0) },
		"Grant.Permits -1: want":                                    func(g *Grant) { *g = permits(-1) },
		"Grant.Fence 3: want 0, because permits have no fencing":    func(g *Grant) { *g = permits(1); g.Fence = 3 },
		`Grant.Owner "a/b" and Grant.Permit "": want no '/'`:        func(g *Grant) { *g = permits(1); g.Owner = "a/b" },
		`Grant.Owner "o" and Grant.Permit "a/b": want no '/'`:       func(g *Grant) { *g = permits(1); g.Owner, g.Permit = "o", "a/b" },
		"Grant.Expires: want a time after 1970":                     func(g *Grant) { g.Expires = time.Time{} },
		"Grant.Expires: want a time after":                          func(g *Grant) { g.Expires = time.UnixMilli(0) },
		"Grant.Audience is empty: want the name of a service":       func(g *Grant) { g.Audience = "" },
		"Grant.Audience has 65 bytes, want at most 64":              func(g *Grant) { g.Audience = strings.Repeat("a", 65) },
		`Grant.Audience "a,b": want visible ASCII without ','`:      func(g *Grant) { g.Audience = "a,b" },
		`Grant.Audience "a b": want visible ASCII`:                  func(g *Grant) { g.Audience = "a b" },
		`Grant.Audience "a\n": want visible ASCII`:                  func(g *Grant) { g.Audience = "a\n" },
		`Grant.Audience "\x7f": want visible ASCII`:                 func(g *Grant) { g.Audience = "\x7f" },
		`Grant.Audience "ü": want visible ASCII`:                    func(g *Grant) { g.Audience = "ü" },
		`Grant.Audience "\xff": want visible ASCII`:                 func(g *Grant) { g.Audience = "\xff" },
	} {
		g := sample()
		change(&g)
		if token, err := k.Sign(g); err == nil || token != "" || !strings.HasPrefix(err.Error(), "reqlock: delegation: "+want) {
			t.Errorf("%q, error %v, want it to begin with %s", token, err, want)
		}
	}
	for name, k := range map[string]*Keys{"zero": {}, "nil": nil} {
		if token, err := k.Sign(sample()); err == nil || token != "" || !strings.Contains(err.Error(), "make Keys with NewKeys") {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
}

// permits returns the grant of a parent with permits.
func permits(n int) Grant {
	g := sample()
	g.Kind, g.Fence, g.Permits = semaphore, 0, n
	return g
}

// A parent that is a guest itself names who took the permits.
func TestSign_Permits(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	for _, taker := range []string{"", "host.2.abcdefgh:7"} {
		for _, n := range []int{1, math.MaxInt32} {
			g := permits(n)
			g.Permit = taker
			if got, err := k.Verify(mustSign(t, k, g), "billing", expires); err != nil || got != g {
				t.Errorf("%+v, %v, want %+v", got, err, g)
			}
		}
	}
	b := permits(1).payload()
	b[ownerAt] = '/'
	if got, err := k.Verify(k.seal(b), "billing", expires); !errors.Is(err, ErrMalformed) {
		t.Errorf("an owner that begins with a slash: %+v, %v", got, err)
	}
}

// The largest grant fits.
func TestSign_Largest(t *testing.T) {
	t.Parallel()
	k := newKeys(t, secret(1))
	g := sample()
	g.Owner, g.Audience = strings.Repeat("~", longestOwner), strings.Repeat("!", longestAudience)
	token := mustSign(t, k, g)
	if len(token) > MaxToken {
		t.Errorf("%d bytes", len(token))
	}
	if got, err := k.Verify(token, g.Audience, expires); err != nil || got != g {
		t.Errorf("%+v, %v, want %+v", got, err, g)
	}
}

func TestNewKeys(t *testing.T) {
	t.Parallel()
	var nine [][]byte
	for n := range byte(9) {
		nine = append(nine, secret(n))
	}
	for want, secrets := range map[string][][]byte{
		"got 0 secrets, want 1 to 8":              nil,
		"got 9 secrets, want 1 to 8":              nine,
		"secret 2 has 31 bytes, want at least 32": {secret(1), secret(2)[1:]},
		"secret 1 has 0 bytes, want at least 32":  {nil},
		"secrets 1 and 3 are the same":            {secret(7), secret(1), secret(7)},
	} {
		if k, err := NewKeys(secrets...); k != nil || err == nil || err.Error() != "reqlock: delegation: NewKeys: "+want {
			t.Errorf("%v, error %v, want %s", k, err, want)
		}
	}
}

// A caller that clears its secrets afterwards does not change the keys.
func TestNewKeys_Copies(t *testing.T) {
	t.Parallel()
	s := secret(1)
	k := newKeys(t, s)
	clear(s)
	if _, err := newKeys(t, secret(1)).Verify(mustSign(t, k, sample()), "billing", expires); err != nil {
		t.Error(err)
	}
}

// No way of printing or logging shows a byte of a secret, alone or inside other values. No error
// has a part of the token or of its signature.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	const text = "correct-horse-battery-staple-0042"
	k := newKeys(t, []byte(text), secret(1))
	token := mustSign(t, k, sample())
	g, err := k.Verify(token, "billing", expires)
	if err != nil {
		t.Fatal(err)
	}
	hidden := struct {
		keys Keys
		at   *Keys
	}{*k, k}
	var out bytes.Buffer
	values := []any{k, *k, hidden, &hidden, Service{k, "billing"}, &Service{k, "billing"}, []*Keys{k}, map[string]Keys{"k": *k}, g, &g}
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb+"\n", value)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "value", value)
	}
	for _, refused := range []string{token + "A", token[:len(token)-1] + "~", "v2" + token[2:]} {
		_, err := k.Verify(refused, "billing", expires)
		fmt.Fprintln(&out, err)
	}
	_, err = k.Verify(token, "orders", expires)
	fmt.Fprintln(&out, err)
	_, signature, _ := strings.Cut(token[len(prefix):], ".")
	numbers := strings.Trim(fmt.Sprintf("%d", []byte(text[:8])), "[]")
	for name, leak := range map[string]string{
		"text": text[:8], "hex": fmt.Sprintf("%x", text[:8]), "HEX": fmt.Sprintf("%X", text[:8]), "numbers": numbers,
		"Go": strings.Trim(fmt.Sprintf("%#v", []byte(text[:8])), "[]byte{}"), "base64": encoding.EncodeToString([]byte(text))[:8],
		"payload": token[len(prefix) : len(prefix)+8], "signature": signature[:8],
	} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("the output has a secret as %s:\n%s", name, out.String())
		}
	}
	if s := k.String(); s != "delegation.Keys(2)" {
		t.Errorf("String() = %q", s)
	}
}

// What verifies was signed, and no text makes Verify panic. The text is a token in the one half,
// and a payload with a good signature in the other.
func FuzzVerify(f *testing.F) {
	k := newKeys(f, secret(1), secret(2))
	payload := sample().payload()
	clear(payload[:lockAt]) // each process of the fuzzer has the same tokens
	signed := []string{k.seal(payload), newKeys(f, secret(2)).seal(payload)}
	for _, token := range append(slices.Clone(signed), newKeys(f, secret(3)).seal(payload), "", "v1..", "v1.AA.AA", strings.Repeat("v1.", 200)) {
		f.Add([]byte(token))
	}
	f.Add(payload)
	f.Fuzz(func(t *testing.T, data []byte) {
		if g, err := k.Verify(string(data), "billing", expires); err == nil && !slices.Contains(signed, string(data)) {
			t.Errorf("%q verifies as %+v", data, g)
		}
		g, ok := parse(data)
		if !ok {
			if _, err := k.Verify(k.seal(data), "billing", expires); !errors.Is(err, ErrMalformed) {
				t.Errorf("%x: %v", data, err)
			}
			return
		}
		again := g.payload()
		copy(again[:lockAt], data) // the random part
		if !bytes.Equal(again, data) {
			t.Errorf("%x is read as %+v, which is written as %x", data, g, again)
		}
		if got, err := k.Verify(k.seal(data), g.Audience, g.Expires); err != nil || got != g {
			t.Errorf("%+v, %v, want %+v", got, err, g)
		}
	})
}

// What Sign signs, Verify reads as it was. What Sign refuses has no token.
func FuzzGrant(f *testing.F) {
	k := newKeys(f, secret(1))
	f.Add([]byte("order:42"), "lock", "host.1.abcdefgh:1", uint64(7), 0, "", expires.UnixMilli(), "billing")
	f.Add([]byte("order:42"), "semaphore", "host.1.abcdefgh:1", uint64(0), 2, "host.1.abcdefgh:2", expires.UnixMilli(), "billing")
	f.Add([]byte{}, "fair", "", uint64(0), 0, "", int64(-1), ",")
	f.Add([]byte{0xff}, "write", strings.Repeat("o", longestOwner), uint64(1<<63), -1, "/", int64(1<<62), strings.Repeat("a", longestAudience))
	f.Fuzz(func(t *testing.T, key []byte, kind, owner string, fence uint64, permits int, permit string, ms int64, audience string) {
		g := Grant{
			Lock: LockIDOf(string(key)), Kind: kind, Owner: owner, Fence: fence, Permits: permits, Permit: permit,
			Expires: time.UnixMilli(ms).UTC(), Audience: audience,
		}
		token, err := k.Sign(g)
		if err != nil {
			if g.check() == nil || token != "" {
				t.Errorf("%+v: %q, %v", g, token, err)
			}
			return
		}
		if len(token) > MaxToken {
			t.Errorf("%d bytes for %+v", len(token), g)
		}
		if got, err := k.Verify(token, audience, g.Expires); err != nil || got != g {
			t.Errorf("%+v, %v, want %+v", got, err, g)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	k := newKeys(b, secret(1))
	for b.Loop() {
		if _, err := k.Sign(sample()); err != nil {
			b.Fatal(err)
		}
	}
}

// Each secret of the ring costs one more signature.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			var secrets [][]byte
			for i := range n {
				secrets = append(secrets, secret(byte(i)))
			}
			k := newKeys(b, secrets...)
			token := mustSign(b, k, sample())
			for b.Loop() {
				if _, err := k.Verify(token, "billing", expires); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
