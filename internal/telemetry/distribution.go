package telemetry

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// bounds are the upper bounds of the buckets of all histograms; the last bucket has none.
var bounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute,
}

const buckets = len(bounds) + 1

// Bounds returns the upper bounds of the buckets in seconds.
func Bounds() []float64 {
	seconds := make([]float64, len(bounds))
	for i, d := range bounds {
		seconds[i] = d.Seconds()
	}
	return seconds
}

// A Distribution counts durations. Recording one takes two atomic additions, to one of several
// stripes, so that processors rarely wait for each other.
//
// The histograms of OpenTelemetry's SDK take several times as long as this, because they look up
// their attributes each time: more than the 3 % of a lock that metrics may cost.
type Distribution struct {
	stripes   [stripes]stripe
	exemplars [buckets]atomic.Pointer[Exemplar]
}

const stripes = 4

type stripe struct {
	counts [buckets]atomic.Uint64
	// sum is in ns.
	sum atomic.Int64
	// The padding makes a multiple of 64 bytes.
	_ [5]uint64
}

// An Exemplar is a trace that a duration belongs to.
type Exemplar struct {
	TraceID  [16]byte
	SpanID   [8]byte
	Duration time.Duration
	Time     time.Time
}

// Record adds a duration. x may be nil.
func (d *Distribution) Record(took time.Duration, x *Exemplar) {
	i := bucketOf(took)
	s := &d.stripes[rand.Uint32()%stripes]
	s.counts[i].Add(1)
	s.sum.Add(int64(took))
	if x != nil {
		d.exemplars[i].Store(x)
	}
}

func bucketOf(d time.Duration) int {
	for i, bound := range bounds {
		if d <= bound {
			return i
		}
	}
	return len(bounds)
}

// A Snapshot is what a Distribution has counted.
type Snapshot struct {
	// Counts has each bucket alone.
	Counts [buckets]uint64
	Count  uint64
	Sum    time.Duration
	// Exemplars has the latest of each bucket.
	Exemplars []Exemplar
}

// Snapshot returns the current counts.
func (d *Distribution) Snapshot() *Snapshot {
	s := new(Snapshot)
	for i := range d.stripes {
		of := &d.stripes[i]
		s.Sum += time.Duration(of.sum.Load())
		for j := range of.counts {
			n := of.counts[j].Load()
			s.Counts[j] += n
			s.Count += n
		}
	}
	for i := range d.exemplars {
		if x := d.exemplars[i].Load(); x != nil {
			s.Exemplars = append(s.Exemplars, *x)
		}
	}
	return s
}
