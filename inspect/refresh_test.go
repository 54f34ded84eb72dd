package inspect

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// scans is a hook that calls a function at the first command of each read, the SCAN for hashes.
type scans func(ctx context.Context) error

func (scans) DialHook(next redis.DialHook) redis.DialHook { return next }
func (scans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (s scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if text := cmd.String(); strings.HasPrefix(text, "scan 0 ") && strings.Contains(text, "type hash") {
			if err := s(ctx); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

// readers returns a page whose reads of Redis call a function.
func readers(t *testing.T, opts Options, read scans) *handler {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	rdb.AddHook(read)
	return newHandler(newClient(t, rdb, "web-1"), opts)
}

// updates reads n updates of a page.
func updates(t *testing.T, client *http.Client, base string, n int) {
	t.Helper()
	resp, err := client.Get(base + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for got := 0; got < n; {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %d updates: %v", got, lines.Err())
		}
		if lines.Text() == "" {
			got++
		}
	}
}

// Redis is read once in each Refresh, however many look and whenever they do.
func TestHandler_ReadsOncePerRefresh(t *testing.T) {
	t.Parallel()
	const refresh = 200 * time.Millisecond
	var mu sync.Mutex
	var reads []time.Time
	h := readers(t, Options{Refresh: refresh}, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		reads = append(reads, time.Now())
		return nil
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var viewers sync.WaitGroup
	for range 2 {
		viewers.Go(func() {
			for ctx.Err() == nil {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
		})
	}
	updates(t, srv.Client(), srv.URL, 5)
	cancel()
	viewers.Wait()
	for i, at := range reads[1:] {
		if pause := at.Sub(reads[i]); pause < refresh {
			t.Errorf("read %d is %s after the one before, want at least %s", i+1, pause, refresh)
		}
	}
}

// A read may take as long as Refresh: SCAN needs minutes on a big Redis. A short Refresh leaves it
// three seconds.
func TestHandler_ReadTakesRefresh(t *testing.T) {
	t.Parallel()
	for refresh, want := range map[time.Duration]time.Duration{leastRefresh: readTimeout, time.Hour: time.Hour} {
		var left time.Duration
		h := readers(t, Options{Refresh: refresh}, func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		})
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		if left > want || left < want/2 {
			t.Errorf("with Refresh %s, a read may take %s, want %s", refresh, left, want)
		}
	}
}

// A server's timeouts end neither a stream that is silent for longer, nor a read that takes longer.
func TestHandler_OutlivesTheTimeoutsOfItsServer(t *testing.T) {
	t.Parallel()
	// The timeout covers the TLS handshake, too.
	const timeout = time.Second
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			h := readers(t, Options{Refresh: 2 * timeout}, func(ctx context.Context) error {
				select { // a big Redis
				case <-time.After(2 * timeout):
				case <-ctx.Done():
				}
				return nil
			})
			h.patience = timeout
			srv := httptest.NewUnstartedServer(h)
			srv.Config.ReadTimeout, srv.Config.WriteTimeout = timeout, timeout
			srv.EnableHTTP2 = protocol == "HTTP/2.0"
			srv.StartTLS()
			t.Cleanup(srv.Close)
			resp, err := srv.Client().Get(srv.URL + "/locks.json")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.Proto != protocol {
				t.Errorf("%s by %s", resp.Status, resp.Proto)
			}
			updates(t, srv.Client(), srv.URL, 3)
		})
	}
}

// The shutdown of a server ends the read that its request waits for, and no page of another server.
func TestHandler_ShutdownEndsTheRead(t *testing.T) {
	t.Parallel()
	reading, failed := make(chan struct{}, 1), make(chan struct{})
	blocked := true
	h := readers(t, Options{Refresh: time.Hour}, func(ctx context.Context) error {
		if !blocked {
			return nil
		}
		reading <- struct{}{}
		select {
		case <-ctx.Done():
		case <-failed:
		}
		return ctx.Err()
	})
	first, second := httptest.NewServer(h), httptest.NewServer(h)
	defer first.Close()
	defer second.Close()
	var page sync.WaitGroup
	page.Go(func() {
		resp, err := http.Get(first.URL + "/")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a page whose read was ended: %s", resp.Status)
		}
	})
	<-reading
	blocked = false
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := first.Config.Shutdown(ctx); err != nil {
		t.Error(err)
		close(failed)
	}
	page.Wait()
	if status, text, _ := get(t, second.URL+"/"); status != http.StatusOK || strings.Contains(text, "cannot be read") {
		t.Errorf("the other server: status %d, %s", status, text)
	}
}

// One who leaves does not wait for a read that another does, and does not end it.
func TestHandler_ViewerLeaves(t *testing.T) {
	t.Parallel()
	reading, answer := make(chan struct{}), make(chan struct{})
	h := readers(t, Options{Refresh: time.Hour}, func(ctx context.Context) error {
		close(reading)
		<-answer
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx)) })
	<-reading
	cancel()
	second := httptest.NewRecorder() // it waits for the first, and returns before it
	h.ServeHTTP(second, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if second.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", second.Code)
	}
	close(answer)
	all.Wait()
	third := httptest.NewRecorder()
	h.ServeHTTP(third, httptest.NewRequest("GET", "/", nil)) // a second read would panic
	if third.Code != http.StatusOK || strings.Contains(third.Body.String(), "cannot be read") {
		t.Errorf("status %d, %s", third.Code, third.Body)
	}
}
