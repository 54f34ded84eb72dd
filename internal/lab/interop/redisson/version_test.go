//go:build interop

package redisson

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
)

var redissons = flag.String("redisson", "4.7.0 3.27.2", "versions of Redisson to test, separated by blanks, each 3.11 or newer")

// A version of Redisson: 3.27.2 is {3, 27, 2}.
type version [3]int

// Versions with changes that matter to the tests.
var (
	oldest = version{3, 11, 0}
	// Older versions: a waiter keeps its place for 5s, not 300s, after the lease it waits for.
	fairWaitsLong      = version{3, 14, 0}
	hasSpinLock        = version{3, 15, 0}
	hasNameMapper      = version{3, 16, 0}
	hasFencedLock      = version{3, 19, 0}
	textPermitIDs      = version{3, 17, 0} // Older versions: ids of permits are text, later they are bytes.
	hasSharded         = version{3, 22, 0} // if the first node it asks owns slot 0
	hasSetPermits      = version{3, 23, 4} // and can acquire several permits at a time
	sureOfSharded      = version{3, 28, 0}
	hasIsHeldOfSeveral = version{3, 27, 2}
	// Older versions: a waiter sleeps until a message once its first TTL is over.
	fairAsksAgain   = version{3, 32, 0}
	strictReadWrite = version{3, 44, 0}
	// Older versions: a thread that waits for several permits sleeps until as many messages have come.
	wakesForSeveral = version{3, 51, 0}
	// Older versions: the NameMapper is not applied to the keys of the queue.
	fairNameMapper = version{3, 52, 0}
	never          = version{math.MaxInt}
)

// versions returns those of the flag.
func versions() (vs []version, err error) {
	for _, text := range strings.Fields(*redissons) {
		var v version
		if _, err := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2]); err != nil || v.String() != text || v.before(oldest) {
			return nil, fmt.Errorf("-redisson=%q: %q is not a version such as 4.7.0, %v or newer", *redissons, text, oldest)
		}
		vs = append(vs, v)
	}
	if len(vs) == 0 {
		return nil, fmt.Errorf("-redisson is empty; it needs a version such as 4.7.0")
	}
	return vs, nil
}

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) before(other version) bool { return slices.Compare(v[:], other[:]) < 0 }
