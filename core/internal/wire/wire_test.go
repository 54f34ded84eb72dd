package wire

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLockChannel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"order:42":     "redisson_lock__channel:{order:42}",
		"{order}:42":   "redisson_lock__channel:{order}:42",
		"a{b":          "redisson_lock__channel:a{b",
		"{}a":          "redisson_lock__channel:{}a",
		"closing}only": "redisson_lock__channel:{closing}only}",
	} {
		if got := LockChannel(name); got != want {
			t.Errorf("LockChannel(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	if got, want := Owner("8f8e7c1a-0000-4000-8000-000000000000", 18446744073709551615),
		"8f8e7c1a-0000-4000-8000-000000000000:18446744073709551615"; got != want {
		t.Errorf("Owner = %q, want %q", got, want)
	}
}

// The values were read off CLUSTER KEYSLOT of a real server.
func TestSlot(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{
		"":           0,
		"123456789":  12739,
		"foo":        12182,
		"{foo}:bar":  12182,
		"bar{foo}":   12182,
		"{}foo":      9500,
		"foo{}{bar}": 8363,
	} {
		if got := Slot(key); got != want {
			t.Errorf("Slot(%q) = %d, want %d", key, got, want)
		}
	}
	if Slot("order:1") != Slot(LockChannel("order:1")[len("redisson_lock__channel:"):]) {
		t.Error("a lock and its channel must fall into one slot")
	}
}
