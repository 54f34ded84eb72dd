package coalesce

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/reqlock/reqlock/core"
)

// Options say how callers share a run. The zero value is a good start. Callers with the same key
// may have different ones, but for the Codec.
type Options struct {
	// WaitTime is how long a caller waits for the run of another. Then it gets core.ErrNotAcquired. 0:
	// 30s. core.WaitForever: until its context ends. It then also waits while Redis is unavailable.
	WaitTime time.Duration
	// LeaseTime is how long a run lasts at most, at least 1ms. When it is over, the run's context
	// ends, and a caller that waits runs. It is also how long a killed process keeps others waiting.
	// 0: the watchdog renews the lease while the run lasts. A killed process then keeps others
	// waiting for core.Options.WatchdogTimeout.
	LeaseTime time.Duration
	// Keep is how long a result is in Redis when the run has ended. Callers that come meanwhile get
	// it, too, so a result may be older than the call by that much and a round trip. At least 1ms and
	// at most an hour. With less than a second or so, a caller that waits in a slow process may come
	// too late for it, and runs. 0: 2s.
	Keep time.Duration
	// ErrorFor is the same for the error of a run: without it, a thousand callers would fail one after
	// another. They get an *Error. Negative: an error is not shared, and the next caller runs. 0: 1s.
	ErrorFor time.Duration
	// Codec turns results into what Redis stores. nil: JSON.
	Codec Codec
	// FailOpen runs the work of each caller for itself if Redis is unavailable. It never applies to a
	// fault that lasts until an operator changes the set-up (core.ErrMisconfigured), or if a read-only
	// replica was reached (core.ErrReadOnly). It does not go with core.WaitForever.
	FailOpen bool
}

// ErrInvalidOptions matches the error of Do for Options that can never work.
var ErrInvalidOptions = errors.New("reqlock: coalesce: invalid Options")

const (
	defaultWaitTime = 30 * time.Second
	defaultKeep     = 2 * time.Second
	defaultErrorFor = time.Second
	mostKeep        = time.Hour
)

func (o Options) validate() error {
	switch {
	case o.WaitTime < 0 && o.WaitTime != core.WaitForever:
		return fmt.Errorf("%w: WaitTime is %s; use 0 for %s, a time, or core.WaitForever", ErrInvalidOptions, o.WaitTime, defaultWaitTime)
	case o.WaitTime == core.WaitForever && o.FailOpen:
		return fmt.Errorf("%w: with core.WaitForever a caller waits while Redis is unavailable, and with FailOpen it runs; choose one", ErrInvalidOptions)
	case o.LeaseTime != 0 && o.LeaseTime < time.Millisecond:
		return fmt.Errorf("%w: LeaseTime is %s; use 0 for the watchdog, or at least 1ms", ErrInvalidOptions, o.LeaseTime)
	case o.Keep != 0 && o.Keep < time.Millisecond || o.Keep > mostKeep:
		return fmt.Errorf("%w: Keep is %s; use 0 for %s, or 1ms to %s", ErrInvalidOptions, o.Keep, defaultKeep, mostKeep)
	case o.ErrorFor > 0 && o.ErrorFor < time.Millisecond || o.ErrorFor > mostKeep:
		return fmt.Errorf("%w: ErrorFor is %s; use 0 for %s, 1ms to %s, or -1 to share no errors", ErrInvalidOptions, o.ErrorFor, defaultErrorFor, mostKeep)
	}
	return nil
}

func (o Options) withDefaults() Options {
	o.WaitTime = cmp.Or(o.WaitTime, defaultWaitTime)
	o.Keep, o.ErrorFor = cmp.Or(o.Keep, defaultKeep), cmp.Or(o.ErrorFor, defaultErrorFor)
	if o.Codec == nil {
		o.Codec = jsonCodec{}
	}
	return o
}
