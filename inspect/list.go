package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/internal/redisclient"
)

// ListOptions says which locks List returns. The zero value is a good default.
type ListOptions struct {
	// Prefix restricts List to names that begin with it. Names are as in Redis, so after a
	// NameMapper. Redis still looks at every key by SCAN, but hashes of other programs are not read
	// unless they have the prefix. Empty: all.
	Prefix string
	// Limit is how many locks List returns at most. 0: 1000. Negative values are refused.
	Limit int
	// Free adds names that are neither held nor queued for: records of a Once, semaphores, and
	// counters of fenced locks, which stay forever. There may be millions.
	Free bool
}

const defaultLimit = 1000

// List returns the locks and semaphores on a Redis, sorted by name, and whether there are more than
// Limit. rdb is what core.New accepts. List refuses a client that does not fit the server, such as that of one
// node of a cluster.
//
// It looks at all keys by SCAN, on every master of a cluster, and reads the locks it finds in
// pipelines: about ten commands for a lock, six for a semaphore, and two for another hash whose name
// has the prefix. Each takes Redis less than a millisecond or so, but a Redis with millions of keys
// needs thousands of them: give a prefix, and bound List by ctx. A lock has up to about 100 holders
// and 100 places of its queue; Show returns more. The result is not a snapshot: a lock that is
// acquired or released meanwhile may be missing or old.
//
// A hash counts as a lock if its only field is an owner of reqlock, such as web-1.4242.k3j9x2ab:7,
// or of Redisson, which begins with a UUID, and its value is a count; or if it is a read/write lock
// with such owners. Redisson's getMultiLock(group, values) is left out, and so is its RSemaphore: it
// is a number without holders. If a lock and a semaphore have the same name, the lock is listed
// while it is held.
func List(ctx context.Context, rdb redis.UniversalClient, opts ListOptions) (locks []Lock, more bool, err error) {
	if opts.Limit < 0 {
		return nil, false, fmt.Errorf("reqlock: inspect.ListOptions.Limit is %d; use 0 for %d, or a positive number",
			opts.Limit, defaultLimit)
	}
	conn, err := connection(ctx, rdb)
	if err != nil {
		return nil, false, failed("list locks", err)
	}
	s := newScan(conn, opts)
	if err := s.run(ctx); err != nil && !errors.Is(err, errFull) {
		return nil, false, failed("list locks", err)
	}
	slices.SortFunc(s.locks, func(a, b Lock) int { return strings.Compare(a.Name, b.Name) })
	more = len(s.locks) > s.limit
	s.locks = s.locks[:min(len(s.locks), s.limit)]
	if err := countListeners(ctx, conn, s.locks); err != nil {
		return nil, false, failed("list locks", err)
	}
	if err := markStalled(ctx, conn, s.locks); err != nil {
		return nil, false, failed("list locks", err)
	}
	return s.locks, more, nil
}

// How much List and Show ask for at once, so that no command takes Redis long.
const (
	// scanCount is how many keys one SCAN looks at.
	scanCount = 1000
	// chunk is how many locks one pipeline reads.
	chunk = 100
	// listed is how many holders and places in the queue of one lock List reads.
	listed = 100
	// shown is how many Show reads.
	shown = 1000
)

// A scan is one run of List. In a cluster, all masters add to it at the same time.
type scan struct {
	opts   ListOptions
	limit  int
	reader reader

	mu sync.Mutex
	// seen has the names of locks, and of those that are being read.
	seen  map[string]bool
	locks []Lock
}

func newScan(rdb redisclient.Client, opts ListOptions) *scan {
	return &scan{
		opts:   opts,
		limit:  cmp.Or(opts.Limit, defaultLimit),
		reader: reader{rdb: rdb, most: listed},
		seen:   make(map[string]bool),
		locks:  []Lock{},
	}
}

// errFull ends a scan that has found more locks than it may return.
var errFull = errors.New("enough locks")

func (s *scan) run(ctx context.Context) error {
	return s.reader.rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return s.node(ctx, node) })
}

// node finds the locks of one server. Held locks come first, so that a name in braces is known
// before a key that it shares with the same name without braces; see core.NameOf.
func (s *scan) node(ctx context.Context, node redis.Cmdable) error {
	p := core.KeyPatternsOf(s.opts.Prefix)
	for _, f := range []finder{
		{p.Lock, "hash", lockName, s.reader.read, false},
		{p.Queue, "list", core.NameOf, s.reader.read, false},
		{p.Taken, "zset", takenName, s.reader.readSemaphores, false},
		{p.Tokens, "string", core.NameOf, s.reader.read, true},
		{p.Record, "hash", core.NameOf, s.reader.read, true},
		{p.Declared, "string", declaredName, s.reader.readSemaphores, true},
	} {
		if f.free && !s.opts.Free {
			continue
		}
		if err := s.keys(ctx, node, f); err != nil {
			return err
		}
	}
	return nil
}

// A finder finds locks by one of their keys.
type finder struct {
	// pattern and kind are those of the key.
	pattern, kind string
	nameOf        func(key string) (name string, ok bool)
	// read returns the locks with these names, nil for a name without a lock.
	read func(ctx context.Context, node redis.Cmdable, names []string) ([]*Lock, error)
	// free says that it finds only those that no one holds.
	free bool
}

// lockName returns the name of the lock with this hash, if it is the hash of a lock.
func lockName(key string) (string, bool) {
	name, ok := core.NameOf(key)
	return key, !ok || core.KeysOf(name).Record != key
}

func takenName(key string) (string, bool) {
	name, ok := core.NameOf(key)
	return name, ok && core.KeysOf(name).Taken == key
}

func declaredName(key string) (string, bool) {
	name, ok := core.NameOf(key)
	return name, ok && core.KeysOf(name).Declared == key
}

// keys reads the locks whose keys match a pattern.
func (s *scan) keys(ctx context.Context, node redis.Cmdable, f finder) error {
	for cursor := uint64(0); ; {
		keys, next, err := node.ScanType(ctx, cursor, f.pattern, scanCount, f.kind).Result()
		if err != nil {
			return err
		}
		for names := range slices.Chunk(s.fresh(keys, f.nameOf), chunk) {
			locks, err := f.read(ctx, node, names)
			if err != nil {
				return err
			}
			if s.add(names, locks) {
				return errFull
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// fresh returns the names of keys that may have the prefix and have not been read yet. A semaphore
// may have its name in braces.
func (s *scan) fresh(keys []string, nameOf func(string) (string, bool)) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		name, ok := nameOf(key)
		braced := "{" + name + "}"
		if !ok || !s.hasPrefix(name) && !s.hasPrefix(braced) || s.seen[name] || s.seen[braced] {
			continue
		}
		s.seen[name] = true
		names = append(names, name)
	}
	return names
}

func (s *scan) hasPrefix(name string) bool { return strings.HasPrefix(name, s.opts.Prefix) }

// add reports whether there are enough locks now. It forgets names that are none: there may be
// millions.
func (s *scan) add(names []string, locks []*Lock) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range locks {
		if l != nil && s.hasPrefix(l.Name) && (s.opts.Free || l.Held() || len(l.Queue) > 0) {
			s.locks = append(s.locks, *l)
		} else {
			delete(s.seen, names[i])
		}
	}
	return len(s.locks) > s.limit
}
