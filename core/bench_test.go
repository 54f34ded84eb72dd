package core

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// A lock that nobody else wants, acquired and released.
func BenchmarkUncontended(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			bundle := newBundle(b)
			c := bundle.client(b)
			var names atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(goroutines)
			b.RunParallel(func(pb *testing.PB) {
				lock := c.Lock(fmt.Sprint("bench:", names.Add(1)))
				for pb.Next() {
					cycle(b, lock, AcquireOptions{})
				}
			})
		})
	}
}

// A lock that all goroutines of one process want.
func BenchmarkContended(b *testing.B) {
	bundle := newBundle(b)
	lock := bundle.client(b).Lock("bench")
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			cycle(b, lock, AcquireOptions{WaitTime: WaitForever})
		}
	})
}

// A lock that goes from one client to the other and back.
func BenchmarkTwoClients(b *testing.B) {
	bundle := newBundle(b)
	locks := []*Lock{bundle.client(b).Lock("bench"), bundle.client(b).Lock("bench")}
	ctx := context.Background()
	lease, err := locks[0].Acquire(ctx, AcquireOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		next := make(chan *Lease)
		go func() {
			got, err := locks[(i+1)%2].Acquire(ctx, AcquireOptions{WaitTime: WaitForever})
			if err != nil {
				b.Error(err)
			}
			next <- got
		}()
		if err := lease.Release(ctx); err != nil {
			b.Fatal(err)
		}
		if lease = <-next; lease == nil {
			return
		}
	}
	if err := lease.Release(ctx); err != nil {
		b.Fatal(err)
	}
}

func cycle(b *testing.B, lock *Lock, opts AcquireOptions) {
	ctx := context.Background()
	lease, err := lock.Acquire(ctx, opts)
	if err != nil {
		b.Error(err)
		return
	}
	if err := lease.Release(ctx); err != nil {
		b.Error(err)
	}
}
