package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Unlock frees every kind of lock on every kind of Redis, and the holder learns it. A lock of
// Redisson is freed as well.
func TestUnlock(t *testing.T) {
	t.Parallel()
	for where, start := range topologies {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb, url := start(t)
			locks := newLocks(t, rdb, "web-1.4242")
			for name, l := range map[string]core.Locker{
				"plain": locks.Lock("plain"), "fair": locks.FairLock("fair"), "fenced": locks.FencedLock("fenced"),
				"read": locks.ReadWriteLock("read").Read(), "write": locks.ReadWriteLock("write").Write(),
			} {
				lease := hold(t, l)
				r := call{redis: url}.want(t, done, []string{"unlock", name, "--yes", "--reason", "pod hangs"},
					name+" is free; it was held by web-1.4242.", `msg="reqlock: unlock" name=`+name, "freed=true", `reason="pod hangs"`, "holders=web-1.4242.", "taken=web-1.4242.")
				if !strings.HasPrefix(r.err, "time=") || strings.Count(r.err, "\n") != 1 {
					t.Errorf("the audit line: %s", r.err)
				}
				select {
				case <-lease.Done():
				case <-time.After(20 * time.Second):
					t.Errorf("the holder of %s does not learn it", name)
				}
				call{redis: url}.want(t, notHeld, []string{"unlock", name, "--yes", "--reason", "again"}, name)
			}
			// Only the counter of the fenced lock is left.
			call{redis: url}.want(t, notHeld, words("unlock fenced --yes --reason again"), "fenced is not held")
			call{redis: url}.want(t, notHeld, words("unlock plain --yes --reason again"), `no such lock: "plain"`)

			if err := rdb.HSet(t.Context(), "order:jvm", jvm+":57", 1).Err(); err != nil {
				t.Fatal(err)
			}
			r := call{redis: url}.want(t, done, words("unlock order:jvm --yes --reason stuck --json"))
			var printed audit
			if err := json.Unmarshal([]byte(r.out), &printed); err != nil {
				t.Fatal(err)
			}
			if !printed.Freed || printed.Reason != "stuck" || printed.Name != "order:jvm" || printed.Holders[0] != jvm+":57" || printed.Taken[0] != jvm+":57" || printed.Left != 0 || printed.Lock.TTL != -1 {
				t.Errorf("%+v", printed)
			}
			var line map[string]any
			if err := json.Unmarshal([]byte(r.err), &line); err != nil || line["reason"] != "stuck" || line["name"] != "order:jvm" {
				t.Errorf("the audit line: %s, %v", r.err, err)
			}
			call{redis: url}.want(t, done, words("ls"), "no locks")
		})
	}
}

// With --owner, unlock takes a lock from one of its readers, and the permits of one holder. A permit
// of Redisson is named by the hex digits that show prints. Without it, all permits are taken.
func TestUnlock_Owner(t *testing.T) {
	t.Parallel()
	const raw, digits = "\x00\xff\r\n:{}%\x7f\x80ABCDEF", "00ff0d0a3a7b7d257f80414243444546"
	for where, start := range topologies {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			rdb, url := start(t)
			at := call{redis: url}
			locks := newLocks(t, rdb, "web-1.4242")
			known := make(map[string]bool)
			newOwner := func() (owner string) {
				for _, h := range locks.Holds() {
					if !known[h.Owner] {
						owner, known[h.Owner] = h.Owner, true
					}
				}
				return owner
			}
			lost := func(lease *core.Lease) {
				t.Helper()
				select {
				case <-lease.Done():
				case <-time.After(20 * time.Second):
					t.Error("the holder does not learn it")
				}
			}

			reader := hold(t, locks.ReadWriteLock("read").Read())
			readOwner := newOwner()
			other := hold(t, locks.ReadWriteLock("read").Read())
			newOwner()
			at.want(t, notHeld, words("unlock read --yes --reason test --owner "+web2+":1"), "read is not held by "+web2+":1")
			at.want(t, done, words("unlock read --yes --reason test --owner "+readOwner), "read is not free: it was taken from web-1.4242.", "1 other owner holds it still")
			lost(reader)

			exports := locks.Semaphore("export", 5)
			one := hold(t, exports)
			oneOwner := newOwner()
			two, err := exports.AcquireN(t.Context(), 2, core.AcquireOptions{})
			if err != nil {
				t.Fatal(err)
			}
			twoOwner := newOwner()
			if err := errors.Join(rdb.ZAdd(t.Context(), core.KeysOf("export").Taken, redis.Z{Score: 922337203685477, Member: raw}).Err(),
				rdb.Decr(t.Context(), "export").Err()); err != nil {
				t.Fatal(err)
			}
			at.want(t, done, words("ls export"), "export semaphore never", "4 of 5")
			at.want(t, done, words("show export"), "4 of 5 permits taken, 1 free", digits+" Redisson 1 never", twoOwner+" host web-1, pid 4242 2 in ")
			call{redis: url, answer: strings.NewReader("no\n")}.want(t, notHeld, words("unlock export --reason test --owner "+digits),
				"export (semaphore) is held by Redisson and never expires.", "export is still held")
			r := at.want(t, done, words("unlock export --yes --reason test --owner "+digits), "Redisson has lost its permits of export; others have 3 permits",
				"kind=semaphore", "holders="+digits, "taken="+digits, "left=3")
			if strings.Contains(r.err, oneOwner) {
				t.Errorf("the audit names another holder: %s", r.err)
			}
			at.want(t, notHeld, words("unlock export --yes --reason test --owner "+digits), "export is not held by "+digits)
			r = at.want(t, done, words("unlock export --yes --json --reason test --owner "+twoOwner))
			var printed audit
			if err := json.Unmarshal([]byte(r.out), &printed); err != nil || len(printed.Holders) != 1 || printed.Taken[0] != printed.Holders[0] || printed.Left != 1 ||
				len(printed.Lock.Holders) != 2 || printed.Lock.Taken != 3 || printed.Lock.Permits != 5 {
				t.Errorf("%s: %v", r.out, err)
			}
			lost(two)
			if one.Err() != nil || other.Err() != nil {
				t.Errorf("others have lost theirs: %v, %v", one.Err(), other.Err())
			}

			again := hold(t, exports)
			at.want(t, done, words("unlock export --yes --reason test"), "export is free; it was held by web-1.4242.", "left=0")
			lost(one)
			lost(again)
			at.want(t, done, words("show export"), "all free: 5 permits")
			at.want(t, notHeld, words("unlock export --yes --reason test"), "export is not held")
			if err := other.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Between the look and the unlock, the holder that was named releases its permit.
func TestUnlock_OwnerLeaves(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	fill(t, rdb)
	release := func() { rdb.ZRem(t.Context(), core.KeysOf("export:xls").Taken, web1+":15") }
	call{redis: srv.URL(), answer: answer(release)}.want(t, notHeld, words("unlock export:xls --reason test --owner "+web1+":15"),
		"export:xls is not held by "+web1+":15 any more", "freed=false", "left=1")
}

// A holder that show does not list because there are too many can be named, too.
func TestUnlock_OwnerAmongMany(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	pipe := rdb.Pipeline()
	for i := range 1100 {
		pipe.ZAdd(t.Context(), core.KeysOf("export").Taken, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli() + int64(i)), Member: fmt.Sprint(web1, ":", i)})
	}
	pipe.Set(t.Context(), "export", 0, 0)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := call{redis: srv.URL()}
	at.want(t, done, words("show export"), "and others, with 100 permits")
	at.want(t, done, words("unlock export --yes --reason test --owner "+web1+":1099"), web1+" has lost its permits of export; others have 1099 permits")
	at.want(t, notHeld, words("unlock export --yes --reason test --owner "+web1+":1099"), "export is not held by "+web1+":1099 any more")
}

// A hash of another program is no lock, though it has one field with a number and a TTL.
func TestUnlock_OtherHash(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	rdb.HSet(t.Context(), "basket:7", "sku:1001", 2)
	rdb.PExpire(t.Context(), "basket:7", time.Minute)
	at := call{redis: srv.URL()}
	at.want(t, done, words("ls"), "no locks")
	at.want(t, notHeld, words("show basket:7"), "is something else")
	at.want(t, notHeld, words("unlock basket:7 --yes --reason test"), "is something else")
	if n := rdb.HGet(t.Context(), "basket:7", "sku:1001").Val(); n != "2" {
		t.Errorf("the hash has %q", n)
	}
}

// An answer is yes, after something has happened.
type answer func()

func (f answer) Read(b []byte) (int, error) {
	f()
	return copy(b, "yes\n"), nil
}

// A yes is about the holders that the question was about.
func TestUnlock_HolderChanges(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	fill(t, rdb)
	args := words("unlock order:42 --reason test")
	pass := func() {
		rdb.Del(t.Context(), "order:42")
		rdb.HSet(t.Context(), "order:42", web2+":1", 1)
	}
	call{redis: srv.URL(), answer: answer(pass)}.want(t, notHeld, args, "is held by "+web1, "order:42 is held by another owner by now: "+web2, "freed=false", "taken=\"\"")
	if !rdb.HExists(t.Context(), "order:42", web2+":1").Val() {
		t.Error("the new holder has lost the lock")
	}
	release := func() { rdb.Del(t.Context(), "order:46") }
	call{redis: srv.URL(), answer: answer(release)}.want(t, notHeld, words("unlock order:46 --reason test"), "order:46 has been released meanwhile")
	call{redis: srv.URL(), answer: answer(func() {})}.want(t, done, args, "order:42 is free; it was held by "+web2)
}

// Between the look and the unlock, the lock changes hands: its new holder keeps it. Of readers,
// those that were shown lose it.
func TestUnlock_HolderChangesAtTheLastMoment(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	fill(t, rdb)
	call{redis: srv.URL()}.want(t, done, words("unlock order:47 --yes --reason first")) // Redis has the script then
	proxy := srv.Proxy(t)
	forces := func(args []string) bool {
		return strings.HasPrefix(strings.ToUpper(args[0]), "EVAL") && slices.Contains(args, web1+":7")
	}
	unlock := func(name string, meanwhile func()) <-chan result {
		held := proxy.OnMatch(1, forces, redistest.HoldRequest)
		out := make(chan result, 1)
		go func() {
			out <- call{redis: "redis://" + proxy.Addr()}.run(t.Context(), words("unlock "+name+" --yes --reason test")...)
		}()
		<-held.Hit()
		meanwhile()
		held.Release()
		return out
	}
	r := <-unlock("order:42", func() {
		rdb.Del(t.Context(), "order:42")
		rdb.HSet(t.Context(), "order:42", web2+":1", 1)
	})
	r.check(t, notHeld, words("unlock order:42"), "held by another owner by now: "+web2, "freed=false", "!is free")
	if !rdb.HExists(t.Context(), "order:42", web2+":1").Val() {
		t.Error("the new holder has lost the lock")
	}
	rdb.HSet(t.Context(), "order:read", "mode", "read", web1+":7", 1)
	r = <-unlock("order:read", func() { rdb.HSet(t.Context(), "order:read", web2+":1", 1) })
	r.check(t, done, words("unlock order:read"), "order:read is not free: it was taken from "+web1+", and 1 other owner holds it still", "left=1")
	if fields := rdb.HKeys(t.Context(), "order:read").Val(); !slices.Contains(fields, web2+":1") || slices.Contains(fields, web1+":7") {
		t.Errorf("the readers are %q", fields)
	}
}

// loseUnlocks starts a Redis with locks, whose replies to unlocks of order:42 are lost.
func loseUnlocks(t *testing.T) (*redistest.Server, *redistest.Proxy, *redistest.Rule) {
	t.Helper()
	srv := redistest.Start(t)
	fill(t, srv.Client(t))
	call{redis: srv.URL()}.want(t, done, words("unlock order:47 --yes --reason first")) // Redis has the script then
	proxy := srv.Proxy(t)
	return srv, proxy, proxy.OnEvery(func(args []string) bool { return slices.Contains(args, web1+":7") }, redistest.DropReply)
}

// An unlock whose reply is lost may have freed the lock, so there is an audit line.
func TestUnlock_ReplyLost(t *testing.T) {
	t.Parallel()
	srv, proxy, _ := loseUnlocks(t)
	for form, text := range map[string]string{"": `msg="reqlock: unlock" name=order:42 kind=lock error=`, " --json": `"name":"order:42","kind":"lock","error":"`} {
		fill(t, srv.Client(t))
		r := call{redis: "redis://" + proxy.Addr()}.want(t, redisFailed, words("unlock order:42 --yes --reason hangs --timeout 2s"+form),
			text, web1+":7", "hangs", "!freed", "!is free")
		if r.out != "" {
			t.Errorf("it prints on stdout %s", r.out)
		}
		if srv.Client(t).Exists(t.Context(), "order:42").Val() != 0 {
			t.Error("Redis has not freed the lock, so this test shows nothing")
		}
	}
}

// The same after Ctrl-C, although the program ends soon.
func TestUnlock_Interrupted(t *testing.T) {
	t.Parallel()
	_, proxy, lost := loseUnlocks(t)
	args := words("unlock order:42 --yes --reason hangs --timeout 20s")
	var out, errs bytes.Buffer
	cmd := program("redis://"+proxy.Addr(), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-lost.Hit()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	r.check(t, interrupted, args, `msg="reqlock: unlock" name=order:42 kind=lock error=`, "holders="+web1+":7", "reason=hangs", "!freed=", "!is free")
}

// Unlock says how many wait, before and after.
func TestUnlock_Waiting(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	fill(t, srv.Client(t))
	at := call{redis: srv.URL(), answer: answer(func() {})}
	at.want(t, done, words("unlock order:44 --reason test"), "expires in 3h30m. Waiting: 2 waiters in the queue.", "order:44 is free; it was held by "+web1+"; waiting: 2 waiters in the queue")
	listen(t, srv.Client(t), core.KeysOf("order:42").Channel)
	at.want(t, done, words("unlock order:42 --reason test"), "Waiting: 1 client, each with one waiter or more.", "; waiting: 1 client")
}
