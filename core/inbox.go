package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reqlock/reqlock/core/internal/access"
	"github.com/reqlock/reqlock/core/internal/batch"
	"github.com/reqlock/reqlock/core/internal/hub"
	"github.com/reqlock/reqlock/core/internal/schedule"
	"github.com/reqlock/reqlock/core/internal/wire"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// An inbox is the client's own channel. When a lock of its holders is freed by force, the script
// publishes the key there. A message is a hint: the client asks Redis whether its holders still
// have the lock. So a forged or late message does no harm, and a lost one only delays what the next
// renewal or the holder's deadline finds out.
//
// The client listens from its first hold until it has held nothing for pauses.listening. In between,
// the channel costs nothing but the pings of the connection.
type inbox struct {
	eng  *engine
	name string
	locks

	open  atomic.Bool // subscribed, or about to be
	alarm schedule.Entry

	mu      sync.Mutex
	channel *hub.Channel      // nil: not subscribed
	asking  map[question]bool // under way; true: to be asked once more
	warned  bool              // the log says that the user may not subscribe
	told    forcings
}

// A question asks Redis which holds are left.
type question struct {
	key string
	all bool // about all keys
}

// locks are the locks that the messages are about.
type locks interface {
	held() int // the number of holds
	// hear handles a message about a key. It reports whether there are holds to verify now.
	hear(key string) bool
	// verify asks Redis which holds of a key are left, and ends the others with the cause.
	verify(key string, cause error)
	// verifyAll does that for all keys, because messages may have been missed.
	verifyAll()
}

func newInbox(eng *engine, l locks) *inbox {
	return &inbox{eng: eng, name: wire.ClientChannel(eng.id), locks: l, asking: make(map[question]bool)}
}

// needed subscribes unless the client listens already. Each grant calls it, with its shard locked.
func (b *inbox) needed() {
	if !b.open.Load() && b.open.CompareAndSwap(false, true) && !b.eng.background.Go(b.subscribe) {
		b.open.Store(false)
	}
}

// subscribe subscribes if the user may, and sets the alarm that ends it.
func (b *inbox) subscribe() {
	if b.permitted() {
		b.mu.Lock()
		channel, confirmed := b.eng.hub.SubscribeOwn(b.name, b)
		b.channel = channel
		b.mu.Unlock()
		if confirmed { // the hub had not unsubscribed yet, and dropped messages meanwhile
			b.Notify()
		}
	}
	b.eng.alarms.Set(&b.alarm, b, b.eng.pauses.listening)
}

// permitted asks Redis before the hub subscribes. A refusal would look like a fault of the waiters'
// channels, and the hub would ask again with every ping.
func (b *inbox) permitted() bool {
	ctx, cancel := context.WithTimeout(batch.Bounded(context.Background()), b.eng.opts.CommandTimeout)
	defer cancel()
	n, err := b.eng.redis.Do(ctx, "EVAL", access.MaySubscribe, 0, b.name).Int()
	if err != nil || n != 0 {
		return true // after an error, the hub repeats the subscription until it succeeds
	}
	b.mu.Lock()
	warn := !b.warned
	b.warned = true
	b.mu.Unlock()
	if warn {
		b.eng.opts.Logger.Warn("reqlock: the Redis user may not subscribe to the channel of this client",
			"channel", b.name, "change", redisacl.User("<user>").Grant("+subscribe", "&"+access.OwnChannels))
	}
	return false
}

// ring ends the subscription of a client that holds nothing. It repeats one that was not permitted.
func (b *inbox) ring() {
	b.mu.Lock()
	channel := b.channel
	b.mu.Unlock()
	switch {
	case b.held() == 0:
		b.leave()
	case channel == nil:
		b.eng.background.Go(b.subscribe)
	default:
		b.eng.alarms.Set(&b.alarm, b, b.eng.pauses.listening)
	}
}

// leave ends the subscription.
func (b *inbox) leave() {
	b.mu.Lock()
	if b.channel != nil {
		b.eng.hub.Unsubscribe(b.channel, b)
		b.channel = nil
	}
	b.mu.Unlock()
	b.open.Store(false)
	if b.held() > 0 { // granted while open was still true
		b.needed()
	}
}

// Notify handles a confirmation of the subscription, the first and those after a reconnect.
func (b *inbox) Notify() { b.ask(question{all: true}) }

// Read handles a message.
func (b *inbox) Read(key string) {
	if f, ok := readForcing(key); ok {
		b.mu.Lock()
		b.told.add(f, time.Now())
		b.mu.Unlock()
		return
	}
	if b.hear(key) {
		b.ask(question{key: key})
	}
}

// ask asks a question in the background. If the same question is under way, it is asked once more
// at the end, however many messages and confirmations arrive.
func (b *inbox) ask(q question) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, asking := b.asking[q]; asking {
		b.asking[q] = true
		return
	}
	if b.eng.background.Go(func() { b.answer(q) }) {
		b.asking[q] = false
	}
}

// cause returns why a key was freed by force, or without if the client has not heard of it.
func (b *inbox) cause(key string, without error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told.cause(key, time.Now(), without)
}

// answer asks, and asks again if ask was called meanwhile.
func (b *inbox) answer(q question) {
	for again := true; again; {
		if q.all {
			b.verifyAll()
		} else {
			b.verify(q.key, b.cause(q.key, errForced))
		}
		b.mu.Lock()
		if again = b.asking[q]; again {
			b.asking[q] = false
		} else {
			delete(b.asking, q)
		}
		b.mu.Unlock()
	}
}
