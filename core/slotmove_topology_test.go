package core

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// What a moving slot does to a lock depends on how many keys its scripts have. A script of one key
// always runs, on the node that has the key or would make it. A script of several is refused
// (TRYAGAIN) unless all of them are on one side: a key that does not exist, such as the hash of a
// free lock, has it wait for the end of the move.
type slotMoveKind struct {
	lockKind
	free     bool // the rival is acquired by a script of one key
	deep     bool // the lock is entered again by a script of several keys
	handedOn bool // to a rival of the same client
}

var slotMoveKinds = map[string]slotMoveKind{
	"lock":         {lockKinds["lock"], true, false, true},
	"write":        {lockKinds["write"], true, false, true},
	"read":         {lockKinds["read"], true, true, false},
	"write, read":  {lockKind{lock: writeSide, rival: readSide}, false, false, false},
	"fenced":       {lockKinds["fenced"], false, false, true},
	"fair":         {lockKinds["fair"], false, false, true},
	"fenced-fair":  {lockKinds["fenced-fair"], false, false, true},
	"fenced-write": {lockKinds["fenced-write"], false, false, true},
	"once":         {lockKind{lock: onceLock, rival: onceLock}, false, false, false},
}

func onceLock(c *Client, name string) *Lock { return c.Once(name).asLock() }

// A slotMoveFate is what becomes of a lock that is held when the slot begins to move.
type slotMoveFate struct {
	name     string
	moves    func(name, key string) bool // which of its keys are on the new node before the move ends; nil: none
	awaited  bool                        // it has a waiter
	fixed    bool                        // it is not renewed, and its waiter hears of the release or never asks again
	outlasts bool                        // it is held until the move is over
	inside   bool                        // the one who waits is of the holder's client
}

func anyKey(string, string) bool         { return true }
func isHash(name, key string) bool       { return name == key }
func isBesideHash(name, key string) bool { return name != key }

var slotMoveFates = []slotMoveFate{
	{name: "stays", awaited: true, fixed: true},
	{name: "moves", awaited: true, fixed: true, moves: anyKey},
	{name: "is polled", awaited: true},
	{name: "is polled there", awaited: true, moves: anyKey},
	{name: "is alone"},
	{name: "is alone there", moves: anyKey},
	{name: "is torn", awaited: true, fixed: true, moves: isHash},
	{name: "is torn apart", awaited: true, fixed: true, moves: isBesideHash},
	{name: "is handed on", awaited: true, fixed: true, inside: true},
	{name: "is handed on there", awaited: true, fixed: true, inside: true, moves: anyKey},
	{name: "outlasts it", awaited: true, outlasts: true},
	{name: "outlasts it there", awaited: true, outlasts: true, moves: anyKey},
}

// heard reports whether the waiter gets the lock while the slot moves.
func (l *slotMoveLock) heard() bool {
	if l.inside && l.handedOn {
		return true
	}
	return l.free && (!l.fixed || l.inside || l.moves == nil)
}

type slotMoveLock struct {
	slotMoveKind
	slotMoveFate
	name    string
	lease   *Lease
	waiting <-chan acquireResult
}

// A slotMoveTest has locks of all kinds and fates in one slot.
type slotMoveTest struct {
	*testing.T
	top                            *topology
	holder, waiter, polling, hasty *Client
	locks                          []*slotMoveLock
	fresh                          map[string]<-chan acquireResult // of each kind, one that was never held
	asking                         sync.WaitGroup                  // those who are refused
}

const slotMoveTag = "{moves}"

// While a slot moves, its locks are renewed, released and waited for, and those with scripts of one
// key are acquired. Others are acquired after the move. A message is lost if the lock was on the
// new node already and the channel still on the old one, or its queue elsewhere than its hash: then
// the waiter asks again at the end of the move, or after PollInterval.
func testSlotMoves(t *testing.T, cluster *redistest.Cluster, top *topology) {
	const lease = 6 * time.Second // on a busy machine, a renewal may come seconds late
	s := &slotMoveTest{
		T:       t,
		top:     top,
		holder:  top.client(t, watchdogTimeout(lease), pollInterval(time.Hour), commandTimeout(patience)),
		waiter:  top.client(t, pollInterval(time.Hour), commandTimeout(patience)), // in which the move ends
		polling: top.client(t, pollInterval(300*time.Millisecond), commandTimeout(patience)),
		hasty:   top.client(t, commandTimeout(3*time.Second)),
		fresh:   make(map[string]<-chan acquireResult),
	}
	defer s.asking.Wait()
	s.holdAll()
	leaveRecord, found := s.holdOnce()

	move := s.begin(cluster)
	begun := time.Now()
	s.asking.Go(func() {
		if err := leaveRecord(); !gotTryAgain(err) {
			t.Errorf("half-way, ReleaseWith: %v", err)
		}
	})
	s.refuseOthers()
	s.takeFresh()
	eventually(t, "more than a lease to pass", func() bool { return time.Since(begun) > 3*lease/2 })
	s.stayHeld()
	s.release(false)
	s.mustHave((*slotMoveLock).heard)
	s.asking.Wait()

	move.Finish(t)
	s.mustHave(func(l *slotMoveLock) bool { return !l.outlasts })
	s.stayHeld()
	s.release(true)
	s.mustHave(func(l *slotMoveLock) bool { return l.outlasts })
	s.releaseFresh()
	if record := mustReceive(t, "the record to be left in the background", found); record != "done" {
		t.Errorf("the waiter found %q", record)
	}
}

// holdAll acquires all locks, enters each for a moment, and adds a waiter.
func (s *slotMoveTest) holdAll() {
	var awaited []string
	for kindName, kind := range slotMoveKinds {
		for _, fate := range slotMoveFates {
			l := &slotMoveLock{slotMoveKind: kind, slotMoveFate: fate, name: slotMoveTag + kindName + " " + fate.name + "."}
			s.locks = append(s.locks, l)
			opts, c := AcquireOptions{}, s.polling
			if l.fixed {
				opts.LeaseTime, c = time.Hour, s.waiter
			}
			if l.inside {
				c = s.holder
			}
			l.lease = mustAcquire(s, bg, l.lock(s.holder, l.name), opts)
			s.enter(l)
			if l.awaited {
				awaited = append(awaited, l.name)
				l.waiting = acquireAsync(bg, l.rival(c, l.name), forever)
			}
		}
	}
	eventually(s, "all listen", func() bool {
		all := strings.Join(s.top.subscribedChannels(s), "\n")
		return !slices.ContainsFunc(awaited, func(name string) bool { return !strings.Contains(all, name) })
	})
}

func (s *slotMoveTest) enter(l *slotMoveLock) {
	mustRelease(s, mustAcquire(s, l.lease.Context(), l.lock(s.holder, l.name), AcquireOptions{}))
}

// begin starts the move of the slot, and moves some of its keys.
func (s *slotMoveTest) begin(cluster *redistest.Cluster) *redistest.SlotMove {
	slot := cluster.Slot(s, slotMoveTag)
	from, masters := cluster.MasterOf(s, slot), cluster.Masters(s)
	to := masters[0]
	if to == from {
		to = masters[1]
	}
	keys, err := from.Client(s).ClusterGetKeysInSlot(bg, slot, 1000).Result()
	if err != nil {
		s.Fatal(err)
	}
	var moving []string
	for _, key := range keys {
		for _, l := range s.locks {
			if strings.Contains(key, l.name) && l.moves != nil && l.moves(l.name, key) {
				moving = append(moving, key)
			}
		}
	}
	move := cluster.MoveSlot(s, slot, to)
	move.MoveKeys(s, moving...)
	return move
}

// gotTryAgain reports whether Redis answered TRYAGAIN. The last try may have been too late for an
// answer.
func gotTryAgain(err error) bool { return err != nil && strings.Contains(err.Error(), "TRYAGAIN") }

// refuseOthers tries to acquire the locks that have no waiter.
func (s *slotMoveTest) refuseOthers() {
	for _, l := range s.locks {
		if l.awaited {
			continue
		}
		s.asking.Go(func() {
			_, err := l.rival(s.hasty, l.name).Acquire(bg, AcquireOptions{})
			if !errors.Is(err, ErrNotAcquired) && (l.free || !gotTryAgain(err)) {
				s.Errorf("%s: Acquire by another: %v", l.name, err)
			}
		})
	}
}

// takeFresh acquires locks that were never held. Where that needs several keys, only patient
// callers get them.
func (s *slotMoveTest) takeFresh() {
	for name, kind := range slotMoveKinds {
		s.fresh[name] = acquireAsync(bg, kind.rival(s.waiter, slotMoveTag+name), AcquireOptions{})
		if kind.free {
			taken := make(chan acquireResult, 1)
			taken <- mustReceive(s, name+": a fresh lock is acquired half-way", s.fresh[name])
			s.fresh[name] = taken
			continue
		}
		s.asking.Go(func() {
			if _, err := kind.rival(s.hasty, slotMoveTag+name).Acquire(bg, AcquireOptions{}); !gotTryAgain(err) {
				s.Errorf("%s: Acquire of a fresh lock half-way: %v", name, err)
			}
		})
	}
}

func (s *slotMoveTest) releaseFresh() {
	for name, taken := range s.fresh {
		got := mustReceive(s, name+": a fresh lock is acquired", taken)
		if got.err != nil {
			s.Errorf("%s: Acquire of a fresh lock: %v", name, got.err)
			continue
		}
		_, err := slotMoveKinds[name].lock(s.hasty, slotMoveTag+name).Acquire(bg, AcquireOptions{})
		wantErr(s, name+": Acquire of what was taken half-way", err, ErrNotAcquired)
		mustRelease(s, got.lease)
	}
}

// stayHeld checks that the locks that were not released are held, and enters them again.
func (s *slotMoveTest) stayHeld() {
	for _, l := range s.locks {
		switch err := l.lease.Err(); {
		case err == nil && !l.deep:
			s.enter(l)
		case err != nil && err != ErrReleased:
			s.Errorf("%s: %v", l.name, err)
		}
	}
}

func (s *slotMoveTest) release(outlasts bool) {
	for _, l := range s.locks {
		if l.outlasts != outlasts {
			continue
		}
		if err := l.lease.Release(bg); err != nil {
			s.Fatalf("%s: Release: %v", l.name, err)
		}
	}
}

// mustHave waits until the waiters have some of the locks.
func (s *slotMoveTest) mustHave(which func(*slotMoveLock) bool) {
	for _, l := range s.locks {
		if l.waiting == nil || l.lease.Err() != ErrReleased || !which(l) {
			continue
		}
		got := mustReceive(s, l.name+": its waiter was not woken", l.waiting)
		l.waiting = nil
		if got.err != nil {
			s.Errorf("%s: its waiter got %v", l.name, got.err)
			continue
		}
		before, fenced := l.lease.Token()
		if token, _ := got.lease.Token(); fenced && token <= before {
			s.Errorf("%s: token %d after %d", l.name, token, before)
		}
		mustRelease(s, got.lease)
	}
}

// holdOnce acquires a Once that is to leave a record, and adds a waiter. A record needs two keys,
// and is not written before the end of the move: leave returns what the holder is told, and found
// gives what the waiter finds.
func (s *slotMoveTest) holdOnce() (leave func() error, found <-chan string) {
	const name = slotMoveTag + "record"
	lease, _, err := s.hasty.Once(name).Acquire(bg, AcquireOptions{LeaseTime: time.Hour})
	if err != nil {
		s.Fatal(err)
	}
	records := make(chan string, 1)
	go func() {
		_, record, err := s.waiter.Once(name).Acquire(bg, forever)
		if err != nil {
			s.Errorf("the waiter for a record: %v", err)
		}
		records <- string(record)
	}()
	s.top.eventuallySubscribed(s, name)
	return func() error { return lease.ReleaseWith(bg, []byte("done"), 5*time.Second) }, records
}
