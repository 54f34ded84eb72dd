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

func TestNamesOfTheOtherKinds(t *testing.T) {
	t.Parallel()
	const owner = "client:7"
	for _, tc := range []struct{ got, want string }{
		{FairChannel("a", owner), "redisson_lock__channel:{a}:client:7"},
		{FairChannel("{a}:b", ""), "redisson_lock__channel:{a}:b:"},
		{FairQueue("a"), "redisson_lock_queue:{a}"},
		{FairDeadlines("{a}:b"), "redisson_lock_timeout:{a}:b"},
		{TokenCounter("a"), "redisson_lock_token:{a}"},
		{ReadWriteChannel("a"), "redisson_rwlock:{a}"},
		{PermitsTaken("a"), "{a}:timeout"},
		{PermitsTaken("{a}:b"), "{a}:b:timeout"},
		{PermitsDeclared("a"), "{a}:permits"},
		{PermitChannel("a"), "redisson_sc:{a}"},
		{PermitChannel("{a}:b"), "redisson_sc:{a}:b"},
		{WriteField(owner), "client:7:write"},
		{ReadTimeout("a", owner, 2), "{a}:client:7:rwlock_timeout:2"},
		{ReadTimeout("{a}:b", owner, 1), "{a}:b:client:7:rwlock_timeout:1"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
	if !IsWriteField(WriteField(owner)) || IsWriteField(owner) || IsWriteField(ModeField) {
		t.Error("a field is mistaken for another")
	}
}

func TestLatchChannel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"order:42":   "redisson_countdownlatch__channel__{order:42}",
		"{order}:42": "redisson_countdownlatch__channel__{{order}:42}",
		"a{b":        "redisson_countdownlatch__channel__{a{b}",
	} {
		if got := LatchChannel(name); got != want {
			t.Errorf("LatchChannel(%q) = %q, want %q", name, got, want)
		}
	}
	if Slot(LatchChannel("order:42")) != Slot("order:42") {
		t.Error("the channel of a latch is in another slot than its name")
	}
}

// A mark is in the slot of its latch, and belongs to no lock.
func TestLatchMark(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"order:42":   "{order:42}:latch:client:7",
		"{order}:42": "{order}:42:latch:client:7",
	} {
		got := LatchMark(name, "client:7")
		if got != want || Slot(got) != Slot(name) {
			t.Errorf("LatchMark(%q) = %q, want %q in the same slot", name, got, want)
		}
		if lock, ok := NameOf(got); ok {
			t.Errorf("%q is taken for a key of the lock %q", got, lock)
		}
	}
}

func TestRecordKey(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"order:42":     "{order:42}:record",
		"{order}:42":   "{order}:42:record",
		"a{b":          "a{b:record",
		"{}a":          "{}a:record",
		"closing}only": "{closing}only}:record",
	} {
		if got := RecordKey(name); got != want {
			t.Errorf("RecordKey(%q) = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"order:42", "{order}:42", "a{b}c"} {
		if Slot(name) != Slot(RecordKey(name)) {
			t.Errorf("the record of %q is in a different slot", name)
		}
	}
}

func TestNameOf(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"order:42", "{order}:42", "a{order}", "{a}{b}", "a{b", "{}a", "closing}only", "x:record", "x:timeout", "*?"} {
		for _, key := range []string{FairQueue(name), TokenCounter(name), RecordKey(name), PermitsTaken(name), PermitsDeclared(name)} {
			if got, ok := NameOf(key); got != name || !ok {
				t.Errorf("NameOf(%q) = %q, %v; want %q", key, got, ok, name)
			}
		}
	}
	if got, ok := NameOf(FairQueue("{order}")); got != "order" || !ok {
		t.Errorf("a name in braces: %q, %v; want order", got, ok)
	}
	for _, key := range []string{"", "order:42", "order:record", "order:timeout", "order:permits", "{}:record", "{}:timeout", "redisson_lock_queue:order", LockChannel("a"), FairDeadlines("a")} {
		if got, ok := NameOf(key); ok {
			t.Errorf("NameOf(%q) = %q, want none", key, got)
		}
	}
}

func TestClientOf(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"web-1.4242.k3j9x2ab:7":                     "web-1.4242.k3j9x2ab",
		"web-1.4242.k3j9x2ab:7:write":               "web-1.4242.k3j9x2ab",
		"8f8e7c1a-0000-4000-8000-000000000000:42":   "8f8e7c1a-0000-4000-8000-000000000000",
		"8f8e7c1a-0000-4000-8000-000000000000:-1":   "8f8e7c1a-0000-4000-8000-000000000000",
		"a.b.k3j9x2ab:18446744073709551615":         "a.b.k3j9x2ab",
		"sku:1001":                                  "",
		"user.name:7":                               "",
		"a:b:1":                                     "",
		"k3j9x2ab:1":                                "",
		".k3j9x2ab:1":                               "",
		"web-1.4242.k3j9x2ab:-1":                    "",
		"web-1.4242.K3J9X2AB:1":                     "",
		"web 1.4242.k3j9x2ab:1":                     "",
		"web-1.4242.k3j9x2ab":                       "",
		"a-client-name-of-29-characters.k3j9x2ab:1": "",
		"8F8E7C1A-0000-4000-8000-000000000000:1":    "",
		"8f8e7c1a000040008000000000000000:1":        "",
		"{8f8e7c1a-0000-4000-8000-000000000000}:1":  "",
		ModeField:       "",
		"":              "",
		"a:":            "",
		"a:-":           "",
		"a:1-":          "",
		":1":            "",
		"a:1:writer":    "",
		"hash:owner:1x": "",
	} {
		if got, ok := ClientOf(field); got != want || ok != (want != "") {
			t.Errorf("ClientOf(%q) = %q, %v; want %q", field, got, ok, want)
		}
	}
}

func TestOwnerOfPermit(t *testing.T) {
	t.Parallel()
	const owner = "web-1.4242.k3j9x2ab:7"
	for _, n := range []int{1, 2, 3, 10, 4096} {
		if got, of, ok := OwnerOfPermit(PermitID(owner, n)); got != owner || of != n || !ok {
			t.Errorf("permit %d of %s: %q, %d, %v", n, owner, got, of, ok)
		}
	}
	for _, id := range []string{"", ":", owner + ":", owner + ":0", owner + ":1", owner + ":02", owner + ":+2", owner + ":-2", owner + ":x",
		owner + ":2:2", owner + ":write", owner + ":write:2", "sku:1001:2", "301aaf8b4c7e4a6e9f0e1d2c3b4a5968", "\xff:2"} {
		if got, n, ok := OwnerOfPermit(id); ok {
			t.Errorf("OwnerOfPermit(%q) = %q, %d; want none", id, got, n)
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

func TestOneSlot(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"order:42":     true,
		"{order}:42":   true,
		"a{order}":     true,
		"{a}{":         true,
		"{a}}":         true,
		"{{a}":         true,
		"a{b":          false,
		"{}a":          false,
		"{}{a}":        false,
		"closing}only": false,
		"":             false,
		"}a{b}":        true,
	} {
		if got := OneSlot(name); got != want {
			t.Errorf("OneSlot(%q) = %v, want %v", name, got, want)
		}
		same := Slot(name) == Slot(LockChannel(name)) && Slot(name) == Slot(LockChannel(name)+":more")
		if same != want {
			t.Errorf("%q is in the slot of its channel: %v, want %v", name, same, want)
		}
	}
}

// The values are from CLUSTER KEYSLOT of a real server.
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

// All keys and channels of a name are in its slot, if it can be used in a cluster, and a field of
// the write side is never taken for another owner's.
func FuzzNames(f *testing.F) {
	for _, seed := range [][2]string{{"order:42", "c:1"}, {"{order}:42", "c:1:write"}, {"a{b", ""}, {"{}a", "\x00"}, {"a}b", "c"}, {"{{a}}", "{x}"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, owner string) {
		if field := WriteField(owner); !IsWriteField(field) || OwnerOf(field) != owner {
			t.Errorf("the field of %q is %q, and its owner %q", owner, field, OwnerOf(field))
		}
		slot := Slot(name)
		if slot < 0 || slot >= Slots {
			t.Fatalf("the slot of %q is %d", name, slot)
		}
		names := map[string]string{
			"LockChannel": LockChannel(name), "FairChannel": FairChannel(name, owner), "ReadWriteChannel": ReadWriteChannel(name),
			"FairQueue": FairQueue(name), "FairDeadlines": FairDeadlines(name), "TokenCounter": TokenCounter(name),
			"ReadTimeout": ReadTimeout(name, owner, 1), "RecordKey": RecordKey(name),
			"PermitsTaken": PermitsTaken(name), "PermitsDeclared": PermitsDeclared(name), "PermitChannel": PermitChannel(name),
		}
		for what, key := range names {
			if OneSlot(name) && Slot(key) != slot {
				t.Errorf("%s of %q is %q, in slot %d, want %d", what, name, key, Slot(key), slot)
			}
			for other, same := range names {
				if what < other && key == same {
					t.Errorf("%s and %s of %q with owner %q are both %q", what, other, name, owner, key)
				}
			}
		}
	})
}
