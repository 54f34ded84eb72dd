package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

func TestRatioNeedsThreeRounds(t *testing.T) {
	t.Parallel()
	r := newResults()
	of, to := ourSeries(s1, "v", throughput), series{s1, "v", rawPair, throughput}
	for round := 1; round <= 4; round++ {
		r.add(s1, "v", ours, throughput, float64(10*round))
		r.add(s1, "v", rawPair, throughput, 10)
		ratio, ok := r.ratio(of, to)
		if ok != (round >= 3) {
			t.Errorf("after %d rounds, a ratio: %t", round, ok)
		}
		_, v := ratioTo(of, rawPair, atLeast(2)).measure(r)
		if want := map[bool]verdict{false: tooFew, true: holds}[ok]; v != want {
			t.Errorf("after %d rounds the verdict is %q, want %q", round, v, want)
		}
		if ok && ratio.median != float64(round+1)/2 {
			t.Errorf("after %d rounds the ratio is %v", round, ratio)
		}
	}
	r.add(s1, "v", rawPair, throughput, 0)
	r.add(s1, "v", ours, throughput, 1)
	if ratio, ok := r.ratio(of, to); ok {
		t.Errorf("a ratio to 0: %v", ratio)
	}
}

// Throughput is compared with the peak of the same round, because the machine is slower in some
// rounds.
func TestThroughputStays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rounds int
		after  float64 // the peak, with 1024 callers
		value  string
		want   verdict
	}{
		{3, 0.9, "0.9 (peak at 256 callers, least at 1024)", holds},
		{4, 0.8, "0.8 (peak at 256 callers, least at 1024)", doesNotHold},
		{3, 1, "1 (peak at 256 callers, least at 256)", holds},
		{2, 1, "", tooFew},
	} {
		r := newResults()
		for round := range test.rounds {
			speed := 100 / float64(1+round%2)
			for _, n := range wholeGrid.callers {
				x := speed
				switch {
				case n < 256:
					x /= 2
				case n == 1024:
					x *= test.after
				}
				r.add(far, callersOn(loopback, n), ours, throughput, x)
			}
		}
		if value, v := throughputStays().measure(r); value != test.value || v != test.want {
			t.Errorf("%d rounds with %v after the peak: %q, %q", test.rounds, test.after, value, v)
		}
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{3}, spread{3, 3, 3, 1}},
		{[]float64{4, 1}, spread{2.5, 1, 4, 2}},
		{[]float64{9, 1, 2}, spread{2, 1, 9, 3}},
	} {
		if got := spreadOf(test.values); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.values, got, test.want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{
		0: "0", 0.0001: "0", 0.051: "0.051", 0.5: "0.5", 1: "1", 1.256: "1.26", 45.67: "45.7", 812.4: "812", 83210: "83.2k",
	} {
		if got := number(x); got != want {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
}

// Without results no check holds or fails.
func TestChecksWithoutResults(t *testing.T) {
	t.Parallel()
	for _, c := range checks() {
		if value, v := c.measure(newResults()); v != notMeasured {
			t.Errorf("%s %s: %s %s", c.scenario, c.must, value, v)
		}
	}
}

func TestReplaceRun(t *testing.T) {
	t.Parallel()
	runBegins, runEnds := near.begins(), near.ends()
	other := away.begins() + "\nold\n" + away.ends()
	text := "before\n" + runBegins + "\nold\n" + runEnds + "\nafter\n" + other
	got, err := replaceRun([]byte(text), near, "new\n")
	if want := "before\n" + runBegins + "\n\nnew\n\n" + runEnds + "\nafter\n" + other; string(got) != want || err != nil {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	for _, text := range []string{"", runBegins, runEnds, runEnds + runBegins} {
		if got, err := replaceRun([]byte(text), near, "new"); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	if err := os.WriteFile(page, []byte(near.begins()+near.ends()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bench{results: newResults()}
	for range 3 {
		b.add(s1, goroutinesOf(1), ours, throughput, 2000)
		b.add(s1, goroutinesOf(1), rawPair, throughput, 1000)
	}
	if err := b.report(io.Discard, description{rounds: 3}, dir, page); err != nil {
		t.Fatal(err)
	}

	file, err := os.Open(filepath.Join(dir, "results.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := csv.NewReader(file).ReadAll()
	if err != nil || len(lines) != 7 || strings.Join(lines[1], ",") != "S1,1 goroutines,reqlock,cycles/s,1,2000" {
		t.Errorf("CSV: %v, %v", lines, err)
	}
	if texts := textsOf(t, filepath.Join(dir, "s1-throughput.svg")); len(texts) != 7 || texts[1] != "higher is better" { // title, what is better, variant, and a name and a number per bar
		t.Errorf("the texts of the plot are %q", texts)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| S1 | 1 goroutines, cycles/s: at least 0.9 times raw pair | 2 (2-2)x | HOLDS |",
		"![S1: cycles a second](./s1-throughput.svg)",
		"| reqlock | 2000 (2000-2000) |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}

// textsOf returns the texts of a plot.
func textsOf(t *testing.T, path string) (texts []string) {
	t.Helper()
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(image)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return texts
		}
		if err != nil {
			t.Fatalf("%s is not XML: %v\n%s", path, err, image)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" {
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	for text, fails := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n":     false,
		"HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n":          false,
		"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n":   true,
		"HTTP/1.1 200 OK\r\n\r\n":                              true,
		"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nshort":   true,
		"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nshort": true,
		"": true,
	} {
		in := bufio.NewReader(strings.NewReader(text))
		if err := readAnswer(in); (err != nil) != fails {
			t.Errorf("%q: %v", text, err)
		} else if rest, _ := io.ReadAll(in); !fails && len(rest) > 0 {
			t.Errorf("%q: %q is left", text, rest)
		}
	}
}

// Each contender excludes: goroutines of one client count without another lock. The raw pair and
// the pipelines do not wait, so they are left out.
func TestContendersExclude(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	for _, name := range []string{fifo, redsyncName, redislockLn, rueidisLock, ours} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients, closeAll, err := openAll(addr, settings{lease: 60e9}, name)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll()
			var wg sync.WaitGroup
			count := 0
			const goroutines, turns = 4, 3
			for range goroutines {
				s := clients[0].session("exclusive:" + name)
				wg.Go(func() {
					for range turns {
						h, err := s.acquire(t.Context())
						if err != nil {
							if t.Context().Err() == nil {
								t.Error(err)
							}
							return
						}
						count++
						if err := h.release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			if err := ended(&wg); err != nil && name != ours {
				t.Logf("%s: %v", name, err) // allowed, as in a run: rueidislock may miss a release
				return
			} else if err != nil {
				t.Fatal(err)
			}
			if count != goroutines*turns {
				t.Errorf("%d turns, want %d", count, goroutines*turns)
			}
		})
	}
}

func TestRawPairIsRefused(t *testing.T) {
	t.Parallel()
	clients, closeAll, err := openAll(redistest.Start(t).Addr(), settings{lease: 60e9}, rawPair, pipelines)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	first, second := clients[0].session("k"), clients[1].session("k")
	h, err := first.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.acquire(t.Context()); !errors.Is(err, errHeld) {
		t.Errorf("a held lock: %v", err)
	}
	if err := h.release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.release(t.Context()); err == nil {
		t.Error("a second release succeeded")
	}
	if err := cycle(t.Context(), second); err != nil {
		t.Error(err)
	}
}

// Many goroutines share pipelines, and each gets its own reply.
func TestPipeGivesEachItsAnswer(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	p := newPipe(rdb)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 50 {
				want := int64(i*1000 + j)
				if got, err := p.do(t.Context(), []any{"eval", "return tonumber(ARGV[1])", 0, want}); got != want || err != nil {
					t.Errorf("%v, %v, want %d", got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if p.leading != 0 || len(p.queue) != 0 {
		t.Errorf("%d leading, %d queued", p.leading, len(p.queue))
	}
	if _, err := p.do(t.Context(), []any{"get", "nothing"}); err != redis.Nil {
		t.Errorf("a missing key: %v", err)
	}
}

func TestTurnsGoInOrder(t *testing.T) {
	t.Parallel()
	var turns turns
	if err := turns.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	if err := turns.wait(left); err == nil {
		t.Error("a waiter that left got the turn")
	}
	second := make(chan error)
	go func() { second <- turns.wait(t.Context()) }()
	turns.next()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// A sticky session blocks after some acquires until the test ends, whatever its context does.
type sticky struct {
	left  int
	ended <-chan struct{}
}

func (s *sticky) acquire(context.Context) (held, error) {
	if s.left--; s.left < 0 {
		<-s.ended
	}
	return s, nil
}

func (s *sticky) release(context.Context) error { return nil }

func newSilentBench() *bench {
	return &bench{results: newResults(), progress: func(string, ...any) {}}
}

// A peer that gets stuck in a turn has no number for that round. The run notes it, and opens it
// anew for the next round.
func TestRelayRoundEndsWithoutAStuckPeer(t *testing.T) {
	t.Parallel()
	b := newSilentBench()
	opened, closed := 0, 0
	relayOf := func(s session) *handOff {
		return &handOff{
			turn: func() (time.Duration, error) {
				_, err := s.acquire(context.Background())
				return time.Millisecond, err
			},
			close: func() { closed++ },
		}
	}
	floor := &relay{name: pubSubFloor, turns: 4, open: func() (*handOff, error) { return relayOf(&sticky{100, t.Context().Done()}), nil }}
	peer := &relay{name: rueidisLock, turns: 4, open: func() (*handOff, error) {
		opened++
		return relayOf(&sticky{map[int]int{1: 6, 2: 100}[opened], t.Context().Done()}), nil
	}}
	for b.round = range 3 {
		if err := b.relayRound([]*relay{floor, peer}, 2*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if opened != 2 || closed != 1 {
		t.Errorf("opened %d times and closed %d times, want 2 and 1", opened, closed)
	}
	if len(b.notes) != 1 || !strings.Contains(b.notes[0], "S3, round 2,") || !strings.Contains(b.notes[0], rueidisLock) {
		t.Errorf("the notes are %q", b.notes)
	}
	of, to := series{s3, twoClients, rueidisLock, handOffP50}, series{s3, twoClients, pubSubFloor, handOffP50}
	if values := b.values[of]; len(values) != 3 || !math.IsNaN(values[1]) || b.spread(of) != (spread{1, 1, 1, 2}) {
		t.Errorf("the values are %v, of which %+v", values, b.spread(of))
	}
	if n := b.spread(to).rounds; n != 3 {
		t.Errorf("the other one has %d rounds, want 3", n)
	}
	if _, ok := b.ratio(of, to); ok {
		t.Error("two rounds have a ratio")
	}
}

// A stuck reqlock fails the run, and so does a peer's error.
func TestPardon(t *testing.T) {
	t.Parallel()
	b, failed := newSilentBench(), errors.New("failed")
	for _, test := range []struct {
		contender string
		err, want error
	}{
		{rueidisLock, errStuck, nil},
		{ours, errStuck, errStuck},
		{rueidisLock, failed, failed},
		{rueidisLock, nil, nil},
	} {
		if got := b.pardon(s1, test.contender, test.err); got != test.want {
			t.Errorf("%s, %v: %v, want %v", test.contender, test.err, got, test.want)
		}
	}
	if len(b.notes) != 1 {
		t.Errorf("the notes are %q", b.notes)
	}
}

func TestInTime(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	if err := inTime(time.Minute, func() error { return failed }); err != failed {
		t.Errorf("%v, want %v", err, failed)
	}
	if err := inTime(10*time.Millisecond, func() error { <-t.Context().Done(); return nil }); err != errStuck {
		t.Errorf("%v, want %v", err, errStuck)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	p := probe{rdb}
	before, err := p.state(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := rdb.Eval(t.Context(), "return redis.call('SET', 'k', 1)", nil).Err(); err != nil {
			t.Fatal(err)
		}
	}
	after, err := p.state(10)
	if err != nil {
		t.Fatal(err)
	}
	u := since(before, after, ours)
	if u.ops != 10 || u.commands != 5 || u.elapsed <= 0 || u.clientCPU < 0 || u.redisCPU < 0 || math.IsNaN(u.rate()) {
		t.Errorf("%+v", u)
	}
	if all, pubSub, err := p.connections(); all < 1 || pubSub != 0 || err != nil {
		t.Errorf("%d connections, %d of them listen: %v", all, pubSub, err)
	}
	sub := rdb.Subscribe(t.Context(), "c")
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, pubSub, err := p.connections(); pubSub != 1 || err != nil {
		t.Errorf("%d connections listen: %v", pubSub, err)
	}
}

// Our own generator requests new orders, each once.
func TestGenerate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := make(map[string]bool)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if seen[r.URL.Path] {
			t.Errorf("%s was requested twice", r.URL.Path)
		}
		seen[r.URL.Path] = true
		handle(w, r)
	}))
	defer srv.Close()
	rate, err := generate(srv.URL, 100*time.Millisecond)
	if err != nil || rate <= 0 || len(seen) < loadConns {
		t.Errorf("%v requests a second (%v), %d orders", rate, err, len(seen))
	}
	srv.Config.Handler = http.NotFoundHandler()
	if rate, err := generate(srv.URL, 10*time.Millisecond); err == nil {
		t.Errorf("a server without the route: %v requests a second", rate)
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for only, want := range map[string]string{"": strings.Join(flagsOf(near), ","), far: far, "S1": "S1", "Names,S3": "Names,S3", "S1,s2": "", "S1,": ""} {
		got, err := wantedOf(only)
		if strings.Join(got, ",") != want || (err != nil) != (want == "") {
			t.Errorf("-only %q: %q, %v", only, got, err)
		}
	}
}
