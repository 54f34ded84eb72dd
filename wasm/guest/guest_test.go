package guest

import (
	"reflect"
	"testing"
	"time"
	"unsafe"
)

// put writes a text into the buffer, as the host does, and the entry for it.
func put(entry, offset int, text string) {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(request))), len(request)*4)
	copy(bytes[offset:], text)
	request[entry], request[entry+1] = declaration.buffer+uint32(offset), uint32(len(text))
}

// kinds returns the number of entries of each kind in the record.
func kinds() map[uint32]int {
	n := make(map[uint32]int)
	for _, e := range record.entries[:record.count] {
		n[e[0]]++
	}
	return n
}

// One test, because a plugin has one function and one buffer.
func TestHandle(t *testing.T) {
	t.Cleanup(func() { decide, names = nil, "" }) // for -count
	var act func(Request, Lock)
	Handle(func(r Request, lock Lock) { act(r, lock) }, PartMethod, PartBody, "X-One", "x-two", "X-None")
	if declaration.wants != 1<<fieldMethod|1<<fieldBody || names != "X-One\x00x-two\x00X-None\x00" || declaration.namesLen != uint32(len(names)) {
		t.Errorf("declaration %+v, names %q", declaration, names)
	}
	put(2*fieldMethod, 1000, "PATCH")
	put(2*fieldBody, 1100, "the body")
	put(2*fields, 1200, "1")
	request[2*fields+2] = 1
	put(2*fields+3, 1300, "a\x00\x00c")
	request[2*fields+5] = 3

	act = func(r Request, lock Lock) {
		if r.Method() != "PATCH" || string(r.Body()) != "the body" || r.Header("x-ONE") != "1" || r.Header("X-Two") != "a" || r.Header("X-None") != "" {
			t.Errorf("%q %q %q %q %q", r.Method(), r.Body(), r.Header("x-ONE"), r.Header("X-Two"), r.Header("X-None"))
		}
		if values := r.HeaderValues("X-Two"); !reflect.DeepEqual(values, []string{"a", "", "c"}) || r.HeaderValues("X-None") != nil {
			t.Errorf("%q, %q", values, r.HeaderValues("X-None"))
		}
		lock.AddKey("a")
		lock.AddKey("b")
		lock.SetMode(ModeRead)
		lock.SetFenced()
		lock.SetLimit(5)
		lock.SetWait(time.Millisecond + 1)
		lock.SetLease(-1)
		lock.Field("name", "value")
	}
	handle()
	if !reflect.DeepEqual(kinds(), map[uint32]int{entryKey: 2, entryField: 1, entryToken: 1, entryLimit: 1}) || record.action != actionLock || record.mode != 3 || record.waitMS != 2 || record.leaseMS != -2 {
		t.Errorf("lock: %+v", record)
	}

	if limit := record.entries[record.count-1]; limit[0] != entryLimit || limit[2] != 4 || limit[1] != address(unsafe.Pointer(&lock.limit)) || lock.limit != 5 {
		t.Errorf("the limit is %d, at %v", lock.limit, limit)
	}

	act = func(_ Request, lock Lock) { lock.AddKey("a") }
	handle()
	if !reflect.DeepEqual(kinds(), map[uint32]int{entryKey: 1}) {
		t.Errorf("the next request: %+v", record)
	}

	act = func(_ Request, lock Lock) { lock.AddKey("a"); lock.SetFenced(); lock.Skip() }
	handle()
	if record.action != actionSkip || record.count != 0 || record.mode != -1 || record.waitMS != -1 || record.leaseMS != -1 {
		t.Errorf("skip: %+v", record)
	}

	act = func(_ Request, lock Lock) {
		lock.Skip()
		lock.Refuse(Refusal{Status: 429, Title: "t", Detail: "d", Problem: "p", Reason: "r", RetryAfter: time.Second + 1})
	}
	handle()
	want := map[uint32]int{entryTitle: 1, entryDetail: 1, entryProblem: 1, entryReason: 1}
	if !reflect.DeepEqual(kinds(), want) || record.action != actionDeny || record.status != 429 || record.retry != 2 {
		t.Errorf("refuse: %+v", record)
	}

	act = func(_ Request, lock Lock) {
		for range maxEntries + 1 {
			lock.AddKey("k")
		}
	}
	handle()
	if record.count != maxEntries+1 {
		t.Errorf("too many keys: the record has %d entries, and the host would not refuse it", record.count)
	}

	request[2*fieldBody], request[2*fieldBody+1] = 0, missing
	act = func(r Request, lock Lock) { lock.Skip(); r.Body(); t.Error("the function went on without its body") }
	handle()
	if record.action != actionNeedsBody {
		t.Errorf("a missing body: %+v", record)
	}
	act = func(Request, Lock) { panic("own") }
	defer func() {
		if recover() != "own" {
			t.Error("a panic of the plugin was swallowed")
		}
	}()
	handle()
}
