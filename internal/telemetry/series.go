package telemetry

import (
	"iter"
	"maps"
	"sync/atomic"
)

// A series finds the series of a metric by the values of its attributes, of which there are few
// combinations. That takes no lock and allocates nothing.
type series[K comparable, V any] struct {
	known atomic.Pointer[map[K]*V]
}

// of returns the series of a key.
func (s *series[K, V]) of(key K) *V {
	for {
		known := s.known.Load()
		if known != nil {
			if v, ok := (*known)[key]; ok {
				return v
			}
		}
		v := new(V)
		grown := map[K]*V{key: v}
		if known != nil {
			maps.Copy(grown, *known)
		}
		if s.known.CompareAndSwap(known, &grown) {
			return v
		}
	}
}

// all returns all series.
func (s *series[K, V]) all() iter.Seq2[K, *V] {
	known := s.known.Load()
	if known == nil {
		return maps.All(map[K]*V(nil))
	}
	return maps.All(*known)
}
