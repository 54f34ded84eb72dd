package coalesce

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// staleSite returns a site that has the answer "old", which is stale.
func staleSite(t *testing.T, cfg Config) *site {
	t.Helper()
	cfg.Keep, cfg.Stale = time.Hour, time.Hour
	s := newSite(t, 2, cfg)
	s.finish(write("old"))
	if w := receive(t, "an answer", s.begin(0)); w.Body.String() != "old" || isShared(w) || w.Header().Get("Age") != "" {
		t.Fatalf("answer %v %s", w.Header(), w.Body)
	}
	s.makeStale()
	return s
}

// recordKey returns the key of the answer in Redis.
func (s *site) recordKey() string {
	s.t.Helper()
	keys := s.rdb.Keys(bg, "*:record").Val()
	if len(keys) != 1 {
		s.t.Fatalf("the answers in Redis are %q, want one", keys)
	}
	return keys[0]
}

// makeStale makes the answer in Redis as stale as if its Keep were over.
func (s *site) makeStale() {
	s.t.Helper()
	key := s.recordKey()
	if err := s.rdb.HSet(bg, key, "stale", s.rdb.PTTL(bg, key).Val().Milliseconds()).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// wantAll sends requests to both processes. All get an answer that was there before, and none runs.
func (s *site) wantAll(body string) {
	s.t.Helper()
	for i := range 6 {
		w := receive(s.t, "an answer", s.get(i%2))
		if w.Code != 200 || w.Body.String() != body || !isShared(w) || w.Header().Get("Age") == "" {
			s.t.Errorf("process %d: answer %d %v %s, want %s", i%2, w.Code, w.Header(), w.Body, body)
		}
	}
	if len(s.running) > 0 {
		s.t.Error("one of them runs")
	}
}

// One request of all processes renews a stale answer. The others get the old one while it runs, and
// the new one afterwards.
func TestServe_Stale(t *testing.T) {
	t.Parallel()
	s := staleSite(t, Config{})
	for _, body := range []string{"new", "newer"} {
		ctx, leave := context.WithCancel(bg)
		renewal := s.begin(1, func(r *http.Request) { *r = *r.WithContext(ctx) })
		old := map[string]string{"new": "old", "newer": "new"}[body]
		s.wantAll(old)
		leave()
		s.wantAll(old)
		s.finish(func(w http.ResponseWriter, r *http.Request) {
			if r.Context().Err() != nil {
				t.Error("the renewal ends with its client")
			}
			write(body)(w, r)
		})
		if w := receive(t, "the renewal", renewal); w.Body.String() != body || isShared(w) || w.Header().Get("Age") != "" {
			t.Errorf("the renewal: %v %s", w.Header(), w.Body)
		}
		s.wantAll(body)
		s.makeStale()
	}
}

// A renewal that fails leaves the old answer, which all get until ErrorFor is over.
func TestServe_StaleAndFailed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  http.HandlerFunc
		code int
		kept bool // The old answer stays for ErrorFor, which is an hour.
	}{
		"500":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 500, true},
		"panic": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, true},
		"set-cookie": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "a=b")
			write("mine")(w, nil)
		}, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := staleSite(t, Config{ErrorFor: time.Hour})
			before := s.rdb.HGet(bg, s.recordKey(), "record").Val()
			renewal := s.begin(0)
			s.finish(test.end)
			if w := receive(t, "the renewal", renewal); w.Code != test.code || isShared(w) {
				t.Errorf("the renewal: answer %d %v", w.Code, w.Header())
			}
			if after := s.rdb.HGet(bg, s.recordKey(), "record").Val(); after != before {
				t.Errorf("the answer in Redis is %q", after)
			}
			<-s.outcomes
			if o := <-s.outcomes; test.code == 200 && !errors.As(o.Err, new(*NotShared)) {
				t.Errorf("the outcome is %+v", o)
			}
			if test.kept {
				s.wantAll("old")
			}
		})
	}
}

// With ErrorFor -1, the next request after a failure renews.
func TestServe_StaleAndErrorsNotShared(t *testing.T) {
	t.Parallel()
	s := staleSite(t, Config{ErrorFor: -1})
	renewal := s.begin(0)
	s.finish(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	receive(t, "the renewal", renewal)
	renewal = s.begin(1)
	s.wantAll("old")
	s.finish(write("new"))
	receive(t, "the next renewal", renewal)
	s.wantAll("new")
}

// A renewal that takes longer than Stale lets the others wait for its answer.
func TestServe_StaleIsOver(t *testing.T) {
	t.Parallel()
	s := staleSite(t, Config{})
	renewal := s.begin(0)
	s.wantAll("old")
	s.rdb.Del(bg, s.recordKey())
	others := []<-chan *httptest.ResponseRecorder{s.get(0), s.get(1), s.get(1)}
	s.gather(3)
	s.finish(write("new"))
	receive(t, "the renewal", renewal)
	for _, answer := range others {
		if w := receive(t, "an answer", answer); w.Body.String() != "new" || !isShared(w) {
			t.Errorf("answer %v %s", w.Header(), w.Body)
		}
	}
}

// A renewal that has lost its lock, as one in a process that was killed, is followed by another one,
// whose answer the late one does not replace.
func TestServe_StaleAndLost(t *testing.T) {
	t.Parallel()
	s := staleSite(t, Config{})
	s.add(Config{Keep: time.Hour, Stale: time.Hour, LeaseTime: 200 * time.Millisecond}) // others keep their lease
	late := make(chan struct{})
	lost := s.begin(2)
	s.finish(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		<-late
		write("late")(w, r)
	})
	var renewal <-chan *httptest.ResponseRecorder
	eventually(t, "another request runs", func() bool {
		answer := s.get(1)
		select {
		case <-s.running:
			renewal = answer
		case w := <-answer:
			if w.Body.String() != "old" || !isShared(w) {
				t.Errorf("meanwhile: answer %v %s", w.Header(), w.Body)
			}
		}
		return renewal != nil
	})
	s.finish(write("new"))
	receive(t, "the renewal", renewal)
	close(late)
	if w := receive(t, "the lost run", lost); w.Body.String() != "late" {
		t.Errorf("the lost run: %s", w.Body)
	}
	s.wantAll("new")
}

// Who asks when a client has the new answer does not get what others had asked for before.
func TestRenewed(t *testing.T) {
	t.Parallel()
	key := groupKey{key: "renewed"}
	early, lead, err := join(key, -1)
	if lead == nil || err != nil {
		t.Fatal("the first request does not lead")
	}
	renewed(key)
	late, next, _ := join(key, -1)
	if next == nil || late == early {
		t.Fatal("the later request joins the earlier one")
	}
	lead.land(&outcome{})
	if again, leads, _ := join(key, -1); again != late || leads != nil {
		t.Error("the end of the earlier group ends the later one")
	}
	late.leave()
	next.cede()
	groups.mu.Lock()
	defer groups.mu.Unlock()
	if groups.byKey[key] != nil {
		t.Error("the group stays")
	}
}

// Age counts from the end of the run, and from what the answer was then.
func TestAnswer_Age(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		ago  time.Duration
		set  string
		want string
	}{
		{0, "", "0"}, {1999 * time.Millisecond, "", "1"}, {time.Minute, "30", "90"}, {-time.Minute, "", "0"}, {time.Minute, "odd", "60"},
	} {
		a := &answer{born: now.Add(-test.ago), header: http.Header{"Age": {test.set}}}
		if got := a.age(now); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
