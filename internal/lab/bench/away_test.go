package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"
)

// wantValues checks that each contender has a value for each metric of a variant.
func wantValues(t *testing.T, b *bench, scenario, variant string, contenders []string, metrics ...string) {
	t.Helper()
	for _, contender := range contenders {
		for _, metric := range metrics {
			if s := b.spread(series{scenario, variant, contender, metric}); s.rounds != 1 || s.median <= 0 {
				t.Errorf("%s, %s, %s, %s: %+v", scenario, variant, contender, metric, s)
			}
		}
	}
}

// Every contender runs with pools of each size, also with one connection for all callers.
func TestLimited(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	if err := b.limited(); err != nil {
		t.Fatal(err)
	}
	for _, n := range poolSizes {
		wantValues(t, b, pools, poolOf(n), b.grid.contenders, throughput, cycleP50, cycleP99)
	}
}

func TestSlowMaster(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	if err := b.slowMaster(); err != nil {
		t.Fatal(err)
	}
	for _, variant := range []string{withoutSlow, besideSlow} {
		wantValues(t, b, slow, variant, []string{ours}, throughput, cycleP50, cycleP99)
	}
}

// One of the three masters is far away, and the names are on the side that was asked for.
func TestTrio(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	trio, err := b.startTrio()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trio.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, slow := range []bool{false, true} {
		names, err := trio.names(4, slow)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			ping := func() {
				if err := trio.rdb.Get(t.Context(), name).Err(); err == nil {
					t.Error("the key is there")
				}
			}
			ping() // dials
			began := time.Now()
			ping()
			if took := time.Since(began); slow && took < slowTrip/2 {
				t.Errorf("a name on the slow master took %v", took)
			}
		}
	}
}

func TestArrive(t *testing.T) {
	t.Parallel()
	b := newShortBench(t)
	if err := b.arrive(); err != nil {
		t.Fatal(err)
	}
	for _, rate := range arrivalRates {
		wantValues(t, b, arrivals, arrivalsAt(rate), b.grid.contenders, cycleP50, cycleP99, cycleP999)
	}
}

// Calls are due at equal intervals, from the first on, even if the pace is read late.
func TestPace(t *testing.T) {
	t.Parallel()
	const rate, n = 2000, 100
	var pace bytes.Buffer
	began := time.Now()
	if err := paceFor(rate, n, &pace); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < pacerAhead+interval(n-1, rate) {
		t.Errorf("the pace took %v", took)
	}
	text := pace.Bytes()
	var due []time.Time
	if err := follow(&pace, rate, n, func(i int, at time.Time) {
		if i != len(due) {
			t.Errorf("call %d came as number %d", i, len(due))
		}
		due = append(due, at)
	}); err != nil {
		t.Fatal(err)
	}
	if len(due) != n || due[0].Before(began) || due[n-1].Sub(due[0]) != interval(n-1, rate) {
		t.Errorf("%d calls, the first %v after the begin, the last %v later", len(due), due[0].Sub(began), due[n-1].Sub(due[0]))
	}
	for _, cut := range []int{0, 4, len(text) - 1} {
		if err := follow(bytes.NewReader(text[:cut]), rate, n, func(int, time.Time) {}); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a pace of %d bytes: %v", cut, err)
		}
	}
}
