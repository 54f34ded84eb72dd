package delegation

import "testing"

// The ID is in tokens, so programs in other versions and languages must find the same.
func TestLockIDOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"":         "e3b0c44298fc1c149afbf4c8996fb924",
		"abc":      "ba7816bf8f01cfea414140de5dae2223",
		"order:42": "da68380de022bac727782efee3c495d4",
	} {
		if got := LockIDOf(key).String(); got != want {
			t.Errorf("LockIDOf(%q) = %s, want %s", key, got, want)
		}
	}
}
