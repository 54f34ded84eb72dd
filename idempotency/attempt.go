package idempotency

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/ctxvalue"
	"github.com/reqlock/reqlock/internal/request"
)

// An attempt is one request in one guard. The context of the request leads to it.
type attempt struct {
	g *Guard
	// server has received the request.
	server *http.Server
	// outer is the attempt of a guard around this one.
	outer *attempt
	state attemptState

	// The client sent key, and scope tells whose key it is.
	key, scope  string
	name        string
	fingerprint [fingerprintSize]byte

	// marker is what OutcomeRefuse leaves of a run, as Redis has it.
	marker []byte
	// The handler runs under lease.
	lease *core.OnceLease
	// The client gets sent, the answer of an earlier run.
	sent *answer

	// keepFor is in nanoseconds. 0: Config.TTL or ErrorTTL.
	keepFor atomic.Int64
	said    atomic.Int32 // It is a word.
}

type attemptState int

const (
	attemptUnkeyed attemptState = iota // There is no key to guard: none was sent, or it is not read yet.
	attemptNested                      // The outer attempt has the same name, and does everything.
	// It has a name. Its handler runs without a lock only if Config.FailOpen lets it.
	attemptKeyed
	// It has a lease.
	attemptLocked
)

// move changes the state, which only goes forward.
func (a *attempt) move(to attemptState) {
	if to <= a.state {
		panic(fmt.Sprintf("reqlock: idempotency: an attempt cannot go from state %d to %d", a.state, to))
	}
	a.state = to
}

type attemptKey struct{}

// attemptFrom returns the innermost attempt of ctx that has its own key; nil: there is none. ctx
// may be a framework's own context.
func attemptFrom(ctx context.Context) *attempt {
	a, _ := ctxvalue.Of(ctx, attemptKey{}).(*attempt)
	for a != nil && a.state < attemptKeyed {
		a = a.outer
	}
	return a
}

// decide names the request, takes its fingerprint, and makes its lock.
func (a *attempt) decide(r *http.Request, p *guard.Policy) error {
	cfg := &a.g.cfg
	key, err := cfg.key(r)
	if err != nil {
		return err
	}
	if key == "" {
		p.Skip = true
		return nil
	}
	scope, err := cfg.Scope(r)
	if err != nil {
		return err
	}
	if scope == "" {
		return newError(keyMissing, "The request does not say on whose behalf it is made.", nil)
	}
	a.key, a.scope, a.name = key, scope, cfg.name(r, scope, key)
	if outer := a.outer; outer != nil && outer.server == a.server && outer.name == a.name {
		p.Skip = true
		a.move(attemptNested) // the middleware is mounted twice
		return nil
	}
	a.move(attemptKeyed)
	if a.isUnderLock(r) {
		a.g.warnOrder(r)
	}
	if err = a.takeFingerprint(r, a.g.body); err != nil {
		p.Lock, err = a.largeRepeat(r, err)
	} else {
		p.Lock, err = a.lock()
	}
	return err
}

// isUnderLock reports whether a guard around the same route holds a lock for the request. A lock of
// another route is that of a batch, or of all that a router serves.
func (a *attempt) isUnderLock(r *http.Request) bool {
	lease, ok := guard.RouteLease(r)
	ofRun := a.outer != nil && a.outer.lease != nil && a.outer.lease.Lease == lease
	return ok && !ofRun
}

func (a *attempt) takeFingerprint(r *http.Request, read func(*http.Request) ([]byte, error)) (err error) {
	var body []byte
	if a.g.cfg.Fingerprint.readsBody() {
		if body, err = read(r); err != nil {
			return err
		}
	}
	a.fingerprint = fingerprint(a.g.cfg.Fingerprint, r, body)
	return nil
}

// largeRepeat returns a lock that answers a request whose body is over MaxRequestBody with the record
// of its key, or refusal, which is the error of reading the body. The handler does not run. But the
// request may be the repeat of one that ran when the limit was higher: if its key has a record, and
// only then, the body is read.
func (a *attempt) largeRepeat(r *http.Request, refusal error) (core.Locker, error) {
	var tooLarge *http.MaxBytesError
	if !errors.As(refusal, &tooLarge) {
		return nil, refusal
	}
	data, err := a.g.locks.Once(lockName(a.name)).Record(r.Context())
	switch {
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil: // a 413 would say that no repeat helps
		return nil, newError(recordUnreadable, "", err)
	case data == nil:
		return nil, refusal
	}
	if err := a.takeFingerprint(r, a.g.largeBody); err != nil {
		return nil, err
	}
	return &settled{lockName(a.name), a.reply(data)}, nil
}

// lock returns the lock of a. Acquire binds the key to the request in the step that takes the lock,
// and with OutcomeRefuse it leaves a marker in the same step.
func (a *attempt) lock() (core.Locker, error) {
	l := &lock{a: a, once: *a.g.locks.Once(lockName(a.name)).WithBinding(a.binding(), a.g.cfg.TTL).WithoutSuccession()}
	if most := a.g.cfg.MaxKeys; most > 0 {
		l.once = *l.once.WithQuota(scopeName(a.scope), most, a.g.cfg.TTL)
	}
	if a.g.cfg.OnUnknown != OutcomeRefuse {
		return l, nil
	}
	var err error
	if a.marker, err = a.seal(&record{kind: kindBegun, fingerprint: a.fingerprint}); err != nil {
		if n, ok := a.g.lines.Count("marked", 1); ok {
			a.g.cfg.Logger.Error("reqlock: idempotency: a run cannot be marked, its request gets 503", "error", err, "requests", n)
		}
		return nil, newError(recordUnwritable, "", err)
	}
	l.once = *l.once.WithMarker(a.marker, a.g.cfg.TTL)
	return l, nil
}

// binding returns what Redis compares to tell a repeat from another request. Redis has it in the
// clear. The client's key is part of it: without that key, a reader of Redis cannot try guesses of a
// request against it.
func (a *attempt) binding() []byte {
	// The fingerprint has a fixed length, so the parts cannot be taken for others.
	var parts [maxKeyLen + fingerprintSize]byte
	sum := sha256.Sum256(append(append(parts[:0], a.key...), a.fingerprint[:]...))
	return sum[:16]
}

// reply returns the error that answers a repeat with the record in Redis.
func (a *attempt) reply(data []byte) error {
	answer, err := a.g.sent.take(a.name, data, a.unseal)
	if errors.Is(err, request.ErrBusy) {
		return err
	}
	if err != nil {
		if n, ok := a.g.lines.Count("read", 1); ok {
			a.g.cfg.Logger.Error("reqlock: idempotency: a record cannot be read, its request gets 503", "error", err, "requests", n)
		}
		return newError(recordUnreadable, "", err)
	}
	a.sent = answer
	rec := answer.rec
	if subtle.ConstantTimeCompare(rec.fingerprint[:], a.fingerprint[:]) != 1 {
		return newError(keyReused, "", nil)
	}
	switch rec.kind {
	case kindUnrecorded:
		return newError(notReplayable, "", nil)
	case kindBegun:
		return newError(outcomeUnknown, "", nil)
	}
	return &replay{rec}
}

// dropAnswer ends the use of the answer, if there is one.
func (a *attempt) dropAnswer() {
	if a.sent != nil {
		a.g.sent.drop(a.sent)
	}
}

// run runs the handler and releases its key.
func (a *attempt) run(r *http.Request, next func(*http.Request, *Recorder)) {
	if a.state != attemptLocked {
		next(r, nil)
		return
	}
	ctx := newRunContext(r.Context(), a.lease.Lease)
	own := r.WithContext(ctx.ctx)
	rec := &Recorder{r: r, limit: a.g.cfg.MaxResponseBody, onPass: ctx.follow}
	returned := false
	defer func() {
		if !returned { // it panicked or called runtime.Goexit
			_ = a.release(r, run{said: a.word()}.ending(), rec, nil)
			rec.abandon()
		}
		ctx.end()
		request.KeepForm(r, own)
	}()
	next(own, rec)
	returned = true
	a.finish(r, rec, ctx.interruption())
}

// finish releases the key. Then it sends the answer, so a client that has the answer can repeat the
// request at once. The client gets the answer even if storing fails. interrupted is why the context
// of the run ended early, or nil.
func (a *attempt) finish(r *http.Request, rec *Recorder, interrupted error) {
	whole := rec.complete()
	// A handler that was interrupted and has answered nothing may have done its work or not, so its
	// empty answer is no result.
	silent := interrupted != nil && rec.state == recorderImplicit
	if !silent {
		guard.SetStatus(r.Context(), rec.status)
	}
	ended := run{
		said: a.word(), returned: true, interrupted: interrupted != nil,
		answered: !silent && rec.state != recorderFailed, failed: rec.status >= 400,
	}
	ended.stored = ended.answered && a.stores(rec)
	ending := ended.ending()
	if ending == endAnswered && !whole {
		ending = endUnrecorded
	}
	var failure error
	if silent {
		failure = fmt.Errorf("the handler ended without an answer after its context: %w", interrupted)
	}
	if err := a.release(r, ending, rec, failure); errors.Is(err, ErrNotStored) && !errors.Is(err, core.ErrLockLost) {
		if n, ok := a.g.lines.Count("stored", 1); ok {
			a.g.cfg.Logger.Warn("reqlock: idempotency: the result of a run is not stored, but the client got it",
				"method", request.Method(r), "pattern", r.Pattern, "error", err, "requests", n)
		}
	}
	rec.release()
}

// release stores what becomes of the key, in the step that releases the lock. failure is why there
// is no result, or nil.
func (a *attempt) release(r *http.Request, ending ending, rec *Recorder, failure error) error {
	var data []byte
	ttl := a.ttl(rec.status)
	switch ending {
	case endAnswered:
		data, failure = a.answer(rec)
	case endUnrecorded:
		data, failure = a.unrecorded()
	case endUnknown:
		data, ttl = a.marker, a.g.cfg.TTL
	}
	isResult := ending != endUnknown && data != nil
	if failure != nil && data == nil {
		data, ttl = a.marker, a.g.cfg.TTL // Release would delete it
	}
	return guard.ReleaseBy(r.Context(), func(lease *core.Lease) (err error) {
		switch {
		case data != nil:
			err = a.lease.ReleaseWithSpare(r.Context(), data, a.spare(data), ttl)
		case ending == endUndone:
			err = a.lease.Withdraw(r.Context())
		default:
			err = lease.Release(r.Context())
		}
		if failure != nil || isResult && err != nil {
			return fmt.Errorf("%w: %w", ErrNotStored, errors.Join(failure, err))
		}
		return err
	})
}

// recordRoom is how much larger than Config.MaxResponseBody a record may be, for its headers and
// for what a Codec adds.
const recordRoom = 64 << 10

// answer returns the record of an answer that is held back whole, as Redis stores it.
func (a *attempt) answer(rec *Recorder) ([]byte, error) {
	data, err := a.seal(&record{
		kind: kindAnswered, fingerprint: a.fingerprint,
		status: rec.status, header: recorded(rec.before, rec.header, rec.body, a.g.cfg.Headers), body: rec.body,
	})
	if err != nil || int64(len(data)-recordRoom) <= a.g.cfg.MaxResponseBody {
		return data, err
	}
	return a.unrecorded()
}

// unrecorded returns the record of a run whose answer cannot be replayed.
func (a *attempt) unrecorded() ([]byte, error) {
	return a.seal(&record{kind: kindUnrecorded, fingerprint: a.fingerprint})
}

// leastSpared is the size from which a record has a spare. Redis may refuse it for its size.
const leastSpared = 16 << 10

// spare returns the record that takes the place of one that Redis refuses; nil: none does.
func (a *attempt) spare(data []byte) []byte {
	if len(data) < leastSpared {
		return nil
	}
	spare, err := a.unrecorded()
	if err != nil {
		return nil
	}
	return spare
}

// stores reports whether Config.Store keeps the answer.
func (a *attempt) stores(rec *Recorder) bool {
	status, header := rec.status, rec.header.Clone()
	if status == 0 { // only a hijacked connection has neither a status nor a header
		status, header = http.StatusSwitchingProtocols, make(http.Header)
	}
	return a.g.cfg.Store(status, header)
}

func (a *attempt) word() word { return word(a.said.Load()) }

// ttl returns how long to keep a result with a status.
func (a *attempt) ttl(status int) time.Duration {
	switch d := time.Duration(a.keepFor.Load()); {
	case d != 0:
		return d
	case status >= 400 && status < 500 && a.word() != saidDone:
		return a.g.cfg.ErrorTTL
	}
	return a.g.cfg.TTL
}

// seal encodes a record for Redis.
func (a *attempt) seal(rec *record) ([]byte, error) {
	data := rec.encode()
	codec := a.g.cfg.Codec
	if codec == nil {
		return data, nil
	}
	sealed, err := codec.Seal(data, lockName(a.name))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reqlock: idempotency: Config.Codec failed to seal a record: %w", err)
	case len(sealed) == 0:
		return nil, errors.New("reqlock: idempotency: Config.Codec sealed a record to nothing; want at least one byte")
	}
	return sealed, nil
}

// unseal decodes a record from Redis.
func (a *attempt) unseal(data []byte) (*record, error) {
	if codec := a.g.cfg.Codec; codec != nil {
		var err error
		if data, err = codec.Open(data, lockName(a.name)); err != nil {
			return nil, fmt.Errorf("reqlock: idempotency: Config.Codec failed to open a record: %w", err)
		}
	}
	return decodeRecord(data)
}
