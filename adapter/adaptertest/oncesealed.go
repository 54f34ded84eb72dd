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
func (fx *fixture) aead(key byte) cipher.AEAD {
	fx.Helper()
	block, err := aes.NewCipher(bytes.Repeat([]byte{key}, 32))
	if err != nil {
		fx.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		fx.Fatal(err)
	}
	return aead
}

// sealedBy seals records with current, and opens them with any of the keys.
func (fx *fixture) sealedBy(current byte, earlier ...byte) func(*idempotency.Config) {
	var ciphers []cipher.AEAD
	for _, key := range earlier {
		ciphers = append(ciphers, fx.aead(key))
	}
	codec := idempotency.AEAD(fx.aead(current), ciphers...)
	return func(cfg *idempotency.Config) { cfg.Codec = codec }
}

func onceSealedReplay(fx *fixture) {
	g := fx.newBlockingHandler()
	s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/a-secret-place")
		g.ServeHTTP(w, r)
		_, _ = io.WriteString(w, strings.Repeat("a secret", 10_000))
	}, repeatsWait, fx.sealedBy(1), refuses)
	first, second := s.start(s.newRequestWithKey("x")), s.start(s.newRequestWithKey("x"))
	inside := g.nextRun()
	fx.eventually("the repeat waits", func() bool { return fx.locks.Stats().Waiting == 1 })
	marker := fx.rdb.HGet(background, fx.record(), "record").Val()
	inside.finish()
	own, again := first.mustGetAnswer(), second.mustGetAnswer()
	if own.header.Get("Idempotent-Replayed") != "" {
		own, again = again, own
	}
	again.wantReplay(fx, own)
	s.postWithKey("x").wantReplay(fx, own)
	s.postWithKey("y").wantProblem(fx, 422, "key-reused", "")
	g.wantRuns(1)
	record := fx.rdb.HGet(background, fx.record(), "record").Val()
	if !strings.HasPrefix(marker, "RQLS") || !strings.HasPrefix(record, "RQLS") || strings.Contains(record, "secret") {
		fx.Errorf("Redis has %.100q and %.100q", marker, record)
	}
}

// onceSealedRotation runs each deployment of a rotation beside the previous one.
func onceSealedRotation(fx *fixture) {
	c := &counter{}
	steps := []*testServer{
		fx.serveOnce(c.ServeHTTP, fx.sealedBy(1)),
		fx.serveOnce(c.ServeHTTP, fx.sealedBy(1, 2)),
		fx.serveOnce(c.ServeHTTP, fx.sealedBy(2, 1)),
		fx.serveOnce(c.ServeHTTP, fx.sealedBy(2)),
	}
	for i, s := range steps {
		user := with("X-User", string(rune('a'+i)))
		first := s.postWithKey("x", user)
		first.wantOwn(fx, 201, fmt.Sprintf("%d x", i+1))
		for _, beside := range steps[max(i-1, 0):min(i+2, len(steps))] {
			beside.postWithKey("x", user).wantReplay(fx, first)
		}
	}
	c.want(fx, int64(len(steps)))
}

// onceSealedUnreadable shows that the handler does not run if a record cannot be opened.
func onceSealedUnreadable(fx *fixture) {
	c := &counter{}
	sealed, other, plain := fx.serveOnce(c.ServeHTTP, fx.sealedBy(1)), fx.serveOnce(c.ServeHTTP, fx.sealedBy(2)), fx.serveOnce(c.ServeHTTP)
	open := fx.serveOnce(c.ServeHTTP, fx.sealedBy(1), func(cfg *idempotency.Config) { cfg.FailOpen = true })
	bert := with("X-User", "bert")
	sealed.postWithKey("x", bert).wantOwn(fx, 201, "1 x")
	ofBert := fx.rdb.HGet(background, fx.record(), "record").Val()
	fx.rdb.Del(background, fx.record())
	first := sealed.postWithKey("x")
	first.wantOwn(fx, 201, "2 x")
	fx.outcomesOf(2)
	name := fx.record()
	good := fx.rdb.HGet(background, name, "record").Val()
	lines := 0
	unreadable := func(what string, s *testServer, says string) {
		s.postWithKey("x").wantProblem(fx, 503, "record-unreadable", "1")
		if o := fx.outcome(); o.Status != 503 || o.Err == nil || !strings.Contains(o.Err.Error(), says) {
			fx.Errorf("%s: the outcome is %+v, want %q", what, o, says)
		}
		lines++
		if n := fx.log.count("a record cannot be read"); n != lines {
			fx.Errorf("%s: %d lines in the log, want %d: %s", what, n, lines, fx.log.text())
		}
	}
	unreadable("another key", other, "no key opens the record")
	unreadable("no Codec", plain, "the record is sealed, and there is no Config.Codec")
	fx.rdb.HSet(background, name, "record", good[:50]+string(good[50]^1)+good[51:])
	unreadable("a changed record", sealed, "no key opens the record")
	unreadable("a changed record, with FailOpen", open, "no key opens the record")
	fx.rdb.HSet(background, name, "record", ofBert)
	unreadable("the record of another", sealed, "no key opens the record")
	fx.rdb.Del(background, name)
	plain.postWithKey("x").wantOwn(fx, 201, "3 x")
	fx.outcome()
	unreadable("a record that is not sealed", sealed, "the record is not sealed")
	fx.rdb.HSet(background, name, "record", good)
	sealed.postWithKey("x").wantReplay(fx, first)
	c.want(fx, 3)
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

func onceSealFails(fx *fixture) {
	codec := &faultyCodec{Codec: idempotency.AEAD(fx.aead(1))}
	faulty := func(cfg *idempotency.Config) { cfg.Codec = codec }
	c := &counter{}
	handle := func(w http.ResponseWriter, r *http.Request) {
		codec.fails.Store(true)
		c.ServeHTTP(w, r)
	}
	wantLost := func() {
		o := fx.outcome()
		fx.wantErr("the outcome", o.Err, idempotency.ErrNotStored)
		fx.wantErr("the outcome", o.Err, errExploded)
		codec.fails.Store(false)
	}

	again := fx.serveOnce(handle, faulty)
	again.postWithKey("x").wantOwn(fx, 201, "1 x")
	wantLost()
	again.postWithKey("x").wantOwn(fx, 201, "2 x")
	wantLost()
	if names := fx.records(); len(names) > 0 {
		fx.Errorf("left in Redis: %q", names)
	}

	never := fx.serveOnce(handle, faulty, refuses, func(cfg *idempotency.Config) { cfg.FailOpen = true })
	never.postWithKey("x").wantOwn(fx, 201, "3 x")
	wantLost()
	never.postWithKey("x").wantProblem(fx, 409, "outcome-unknown", "")
	if n := fx.log.count("is not stored"); n != 3 {
		fx.Errorf("%d log lines say that a result is not stored, want 3: %s", n, fx.log.text())
	}
	codec.fails.Store(true) // not even the marker of a run can be sealed
	bert := with("X-User", "bert")
	never.postWithKey("x", bert).wantProblem(fx, 503, "record-unwritable", "1")
	if fx.log.count("a run cannot be marked") != 1 {
		fx.Errorf("the log lacks the error: %s", fx.log.text())
	}
	codec.fails.Store(false)
	never.postWithKey("x", bert).wantOwn(fx, 201, "4 x")
	c.want(fx, 4)
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
func onceLargeRecord(fx *fixture) {
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
		"sealed, headers, AES": {room - 1000, limit, idempotency.AEAD(fx.aead(1)), true},
	} {
		c := &counter{}
		s := fx.serveOnce(func(w http.ResponseWriter, r *http.Request) {
			c.runs.Add(1)
			w.Header().Set("X-Large", strings.Repeat("h", test.header))
			_, _ = io.WriteString(w, strings.Repeat("b", test.body))
		}, func(cfg *idempotency.Config) { cfg.MaxResponseBody, cfg.Codec = limit, test.codec })
		user := with("X-User", name)
		first := s.postWithKey("x", user)
		first.wantOwn(fx, 200, strings.Repeat("b", test.body))
		if test.stored {
			s.postWithKey("x", user).wantReplay(fx, first)
		} else {
			s.postWithKey("x", user).wantProblem(fx, 409, "not-replayable", "")
		}
		c.want(fx, 1)
	}
}
