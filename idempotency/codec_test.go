package idempotency

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func block(t *testing.T, key byte) cipher.Block {
	t.Helper()
	b, err := aes.NewCipher(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// gcm returns an AEAD that needs a nonce.
func gcm(t *testing.T, key byte) cipher.AEAD {
	t.Helper()
	aead, err := cipher.NewGCM(block(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return aead
}

// randomGCM returns an AEAD that adds its own nonce.
func randomGCM(t *testing.T, key byte) cipher.AEAD {
	t.Helper()
	aead, err := cipher.NewGCMWithRandomNonce(block(t, key))
	if err != nil {
		t.Fatal(err)
	}
	return aead
}

func TestAEAD_RoundTrip(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]cipher.AEAD{"a nonce": gcm(t, 1), "its own nonce": randomGCM(t, 1)} {
		codec := AEAD(key)
		seen := make(map[string]bool)
		for _, record := range []string{"", "record", "record", strings.Repeat("long ", 100_000)} {
			sealed, err := codec.Seal([]byte(record), "name")
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(sealed)] || record != "" && bytes.Contains(sealed, []byte(record)) || !bytes.HasPrefix(sealed, []byte("RQLS\x01")) {
				t.Errorf("%s: sealed as %.100q", name, sealed)
			}
			seen[string(sealed)] = true
			if opened, err := codec.Open(sealed, "name"); string(opened) != record || err != nil {
				t.Errorf("%s: opened as %.100q, %v", name, opened, err)
			}
		}
	}
}

func TestAEAD_Rotation(t *testing.T) {
	t.Parallel()
	before, between, after := AEAD(gcm(t, 1)), AEAD(gcm(t, 1), randomGCM(t, 2)), AEAD(randomGCM(t, 2), gcm(t, 1))
	seal := func(c Codec) []byte {
		sealed, err := c.Seal([]byte("record"), "name")
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	for i, test := range []struct {
		sealed []byte
		opens  []bool // before, between, after
	}{
		{seal(before), []bool{true, true, true}},
		{seal(between), []bool{true, true, true}},
		{seal(after), []bool{false, true, true}},
	} {
		for j, codec := range []Codec{before, between, after} {
			record, err := codec.Open(test.sealed, "name")
			if opens := string(record) == "record" && err == nil; opens != test.opens[j] || !opens && !errors.Is(err, errNoKey) {
				t.Errorf("%d, %d: opened as %q, %v", i, j, record, err)
			}
		}
	}
}

func TestAEAD_Tampered(t *testing.T) {
	t.Parallel()
	codec := AEAD(gcm(t, 1), randomGCM(t, 2))
	sealed, err := codec.Seal([]byte("record"), "name")
	if err != nil {
		t.Fatal(err)
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if record, err := codec.Open(bad, "name"); err == nil {
			t.Errorf("with byte %d changed, it opens as %q", i, record)
		}
		if record, err := codec.Open(sealed[:i], "name"); err == nil {
			t.Errorf("the first %d bytes open as %q", i, record)
		}
	}
	for what, test := range map[string]struct {
		sealed []byte
		name   string
		want   error
	}{
		"another name": {sealed, "nam", errNoKey},
		"longer":       {append(bytes.Clone(sealed), 0), "name", errNoKey},
		"not sealed":   {someRecord().encode(), "name", errNotSealed},
		"nothing":      {nil, "name", errNotSealed},
	} {
		if record, err := codec.Open(test.sealed, test.name); record != nil || !errors.Is(err, test.want) {
			t.Errorf("%s: opened as %q, %v; want %v", what, record, err, test.want)
		}
	}
}

func TestAEAD_NilKey(t *testing.T) {
	t.Parallel()
	for says, keys := range map[string][]cipher.AEAD{"argument 1 of 1 is nil": {nil}, "argument 2 of 2 is nil": {gcm(t, 1), nil}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, says) {
					t.Errorf("panics with %s, want %s", text, says)
				}
			}()
			AEAD(keys[0], keys[1:]...)
		}()
	}
}

// Without a Codec, a sealed record has its own error.
func TestDecodeRecord_Sealed(t *testing.T) {
	t.Parallel()
	sealed, err := AEAD(gcm(t, 1)).Seal(someRecord().encode(), "name")
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := decodeRecord(sealed); !errors.Is(err, errSealedRecord) {
		t.Errorf("decoded as %+v, %v", rec, err)
	}
}
