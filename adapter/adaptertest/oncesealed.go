package adaptertest

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/reqlock/reqlock/idempotency"
)

var onceSealed = []scenario{
	{name: "once: sealed records are replayed, and cannot be read in Redis", run: onceSealedReplay},
	{name: "once: sealed records, keys are rotated", run: onceSealedRotation},
	{name: "once: sealed records that cannot be opened", run: onceSealedUnreadable},
	{name: "once: a Codec that fails to seal", run: onceSealFails},
	{name: "once: a record that is too large", run: onceLargeRecord},
}

// aead returns a cipher with a key made of that byte.
func (e *env) aead(key byte) cipher.AEAD {
	e.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		e.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		e.Fatal(err)
	}
	return aead
}

// sealedBy seals records with current, and opens them with any of the keys.
func (e *env) sealedBy(current byte, earlier ...byte) func(*idempotency.Config) {
	var ciphers []cipher.AEAD
	for _, key := range earlier {
		ciphers = append(ciphers, e.aead(key))
	}
	codec := idempotency.AEAD(e.aead(current), ciphers...)
	return func(cfg *idempotency.Config) { cfg.Codec = codec }
}

func onceSealedReplay(e *env) {
	g := e.gate()
	s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/a-secret-place")
		g.ServeHTTP(w, r)
		_, _ = io.WriteString(w, strings.Repeat("a secret", 10_000))
	}, repeatsWait, e.sealedBy(1), refuses)
	first, second := s.start(s.paying("x")), s.start(s.paying("x"))
	inside := g.next()
	e.eventually("the repeat waits", func() bool { return e.locks.Stats().Waiting == 1 })
	marker := e.rdb.HGet(background, e.record(), "record").Val()
	inside.leave()
	own, again := first.answer(), second.answer()
	if own.header.Get("Idempotent-Replayed") != "" {
		own, again = again, own
	}
	again.wantReplay(e, own)
	s.pay("x").wantReplay(e, own)
	s.pay("y").wantProblem(e, 422, "key-reused", "")
	g.wantRuns(1)
	record := e.rdb.HGet(background, e.record(), "record").Val()
	if !strings.HasPrefix(marker, "RQLS") || !strings.HasPrefix(record, "RQLS") || strings.Contains(record, "secret") {
		e.Errorf("Redis has %.100q and %.100q", marker, record)
	}
}

// onceSealedRotation runs each deployment of a rotation beside the previous one.
func onceSealedRotation(e *env) {
	c := &counter{}
	steps := []*site{
		e.serveOnce(c.ServeHTTP, e.sealedBy(1)),
		e.serveOnce(c.ServeHTTP, e.sealedBy(1, 2)),
		e.serveOnce(c.ServeHTTP, e.sealedBy(2, 1)),
		e.serveOnce(c.ServeHTTP, e.sealedBy(2)),
	}
	for i, s := range steps {
		user := with("X-User", string(rune('a'+i)))
		first := s.pay("x", user)
		first.wantOwn(e, 201, fmt.Sprintf("%d x", i+1))
		for _, beside := range steps[max(i-1, 0):min(i+2, len(steps))] {
			beside.pay("x", user).wantReplay(e, first)
		}
	}
	c.want(e, int64(len(steps)))
}

// onceSealedUnreadable shows that the handler does not run if a record cannot be opened.
func onceSealedUnreadable(e *env) {
	c := &counter{}
	sealed, other, plain := e.serveOnce(c.ServeHTTP, e.sealedBy(1)), e.serveOnce(c.ServeHTTP, e.sealedBy(2)), e.serveOnce(c.ServeHTTP)
	open := e.serveOnce(c.ServeHTTP, e.sealedBy(1), func(cfg *idempotency.Config) { cfg.FailOpen = true })
	bert := with("X-User", "bert")
	sealed.pay("x", bert).wantOwn(e, 201, "1 x")
	ofBert := e.rdb.HGet(background, e.record(), "record").Val()
	e.rdb.Del(background, e.record())
	first := sealed.pay("x")
	first.wantOwn(e, 201, "2 x")
	e.outcomesOf(2)
	name := e.record()
	good := e.rdb.HGet(background, name, "record").Val()
	lines := 0
	unreadable := func(what string, s *site, says string) {
		s.pay("x").wantProblem(e, 503, "record-unreadable", "1")
		if o := e.outcome(); o.Status != 503 || o.Err == nil || !strings.Contains(o.Err.Error(), says) {
			e.Errorf("%s: the outcome is %+v, want %q", what, o, says)
		}
		lines++
		if n := e.log.count("a record cannot be read"); n != lines {
			e.Errorf("%s: %d lines in the log, want %d: %s", what, n, lines, e.log.text())
		}
	}
	unreadable("another key", other, "no key opens the record")
	unreadable("no Codec", plain, "the record is sealed, and there is no Config.Codec")
	e.rdb.HSet(background, name, "record", good[:50]+string(good[50]^1)+good[51:])
	unreadable("a changed record", sealed, "no key opens the record")
	unreadable("a changed record, with FailOpen", open, "no key opens the record")
	e.rdb.HSet(background, name, "record", ofBert)
	unreadable("the record of another", sealed, "no key opens the record")
	e.rdb.Del(background, name)
	plain.pay("x").wantOwn(e, 201, "3 x")
	e.outcome()
	unreadable("a record that is not sealed", sealed, "the record is not sealed")
	e.rdb.HSet(background, name, "record", good)
	sealed.pay("x").wantReplay(e, first)
	c.want(e, 3)
}

// A faultyCodec fails to seal while fails is set.
type faultyCodec struct {
	idempotency.Codec
	fails atomic.Bool
}

func (c *faultyCodec) Seal(record []byte, name string) ([]byte, error) {
	if c.fails.Load() {
		return nil, errExploded
	}
	return c.Codec.Seal(record, name)
}

func onceSealFails(e *env) {
	codec := &faultyCodec{Codec: idempotency.AEAD(e.aead(1))}
	faulty := func(cfg *idempotency.Config) { cfg.Codec = codec }
	c := &counter{}
	handle := func(w http.ResponseWriter, r *http.Request) {
		codec.fails.Store(true)
		c.ServeHTTP(w, r)
	}
	wantLost := func() {
		o := e.outcome()
		e.wantErr("the outcome", o.Err, idempotency.ErrNotStored)
		e.wantErr("the outcome", o.Err, errExploded)
		codec.fails.Store(false)
	}

	again := e.serveOnce(handle, faulty)
	again.pay("x").wantOwn(e, 201, "1 x")
	wantLost()
	again.pay("x").wantOwn(e, 201, "2 x")
	wantLost()
	if names := e.records(); len(names) > 0 {
		e.Errorf("left in Redis: %q", names)
	}

	never := e.serveOnce(handle, faulty, refuses, func(cfg *idempotency.Config) { cfg.FailOpen = true })
	never.pay("x").wantOwn(e, 201, "3 x")
	wantLost()
	never.pay("x").wantProblem(e, 409, "outcome-unknown", "")
	if n := e.log.count("is not stored"); n != 3 {
		e.Errorf("%d log lines say that a result is not stored, want 3: %s", n, e.log.text())
	}
	codec.fails.Store(true) // not even the marker of a run can be sealed
	bert := with("X-User", "bert")
	never.pay("x", bert).wantProblem(e, 503, "record-unwritable", "1")
	if e.log.count("a run cannot be marked") != 1 {
		e.Errorf("the log lacks the error: %s", e.log.text())
	}
	codec.fails.Store(false)
	never.pay("x", bert).wantOwn(e, 201, "4 x")
	c.want(e, 4)
}

// A growingCodec makes records larger.
type growingCodec struct{}

func (growingCodec) Seal(record []byte, _ string) ([]byte, error) {
	return []byte(hex.EncodeToString(record)), nil
}

func (growingCodec) Open(sealed []byte, _ string) ([]byte, error) {
	return hex.DecodeString(string(sealed))
}

// onceLargeRecord shows that the limit applies to the record as Redis stores it.
func onceLargeRecord(e *env) {
	const limit, room = 1000, 64 << 10
	for name, test := range map[string]struct {
		header, body int
		codec        idempotency.Codec
		stored       bool
	}{
		"small":                {10, 10, nil, true},
		"a full body":          {10, limit, nil, true},
		"large headers":        {room - 1000, limit, nil, true},
		"headers too large":    {room + 1000, 10, nil, false},
		"sealed, small":        {room/2 - 1000, 10, growingCodec{}, true},
		"sealed, too large":    {room/2 + 1000, 10, growingCodec{}, false},
		"sealed, a full body":  {10, limit, growingCodec{}, true},
		"sealed, headers, AES": {room - 1000, limit, idempotency.AEAD(e.aead(1)), true},
	} {
		c := &counter{}
		s := e.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			c.runs.Add(1)
			w.Header().Set("X-Large", strings.Repeat("h", test.header))
			_, _ = io.WriteString(w, strings.Repeat("b", test.body))
		}, func(cfg *idempotency.Config) { cfg.MaxResponseBody, cfg.Codec = limit, test.codec })
		user := with("X-User", name)
		first := s.pay("x", user)
		first.wantOwn(e, 200, strings.Repeat("b", test.body))
		if test.stored {
			s.pay("x", user).wantReplay(e, first)
		} else {
			s.pay("x", user).wantProblem(e, 409, "not-replayable", "")
		}
		c.want(e, 1)
	}
}
