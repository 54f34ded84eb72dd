package request

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// The budget is global, so no test of this package is parallel.

// An owned body has its owner's account.
type owned struct {
	io.Reader
	account Account
}

func (*owned) Close() error            { return nil }
func (b *owned) BodyAccount() *Account { return &b.account }

// post returns a request whose body is owned. length -1 means unknown.
func post(body io.Reader, length int64) (*http.Request, *owned) {
	b := &owned{Reader: body}
	r := httptest.NewRequest(http.MethodPost, "/", b)
	r.ContentLength = length
	return r, b
}

// within sets the budget for one test, which must return all of it.
func within(t *testing.T, bytes int64) {
	t.Helper()
	SetBudget(bytes)
	t.Cleanup(func() {
		SetBudget(0)
		if BudgetUsed() != 0 {
			t.Errorf("%d bytes are still in use", BudgetUsed())
		}
	})
}

func TestReadBody_TakesRoomAsTheBodyArrives(t *testing.T) {
	within(t, 1<<20)
	const size = 1_000_000
	for _, length := range []int64{size, -1} {
		in, out := io.Pipe()
		r, b := post(in, length)
		done := make(chan error, 1)
		go func() {
			_, err := ReadBody(r, 2*size)
			done <- err
		}()
		sent := 0
		for _, part := range []int{1, 4000, 95, 10_000, 300_000} {
			if _, err := io.WriteString(out, strings.Repeat("x", part)); err != nil {
				t.Fatal(err)
			}
			sent += part // all of it was read, but the buffer may not have grown yet
			if used := int(BudgetUsed()); used > max(2*sent-Exempt, 0) || used < sent/2-Exempt {
				t.Errorf("%d bytes have arrived, %d are in use", sent, used)
			}
		}
		if _, err := io.WriteString(out, strings.Repeat("x", size-sent)); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if length == size && BudgetUsed() > size+1-Exempt {
			t.Errorf("%d bytes are in use for a body of %d", BudgetUsed(), size)
		}
		b.account.Close()
		if BudgetUsed() != 0 {
			t.Errorf("%d bytes are in use after Close", BudgetUsed())
		}
	}
}

func TestReadBody_NoRoom(t *testing.T) {
	within(t, 100_000)
	first, owner := post(strings.NewReader(strings.Repeat("x", 70_000)), 70_000)
	if _, err := ReadBody(first, 1<<20); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789", 4000)
	var later *http.Request
	for _, length := range []int64{-1, int64(len(text))} {
		r, b := post(strings.NewReader(text), length)
		for range 2 {
			if data, err := ReadBody(r, 1<<20); data != nil || !errors.Is(err, ErrBusy) {
				t.Errorf("%d bytes, %v; want ErrBusy", len(data), err)
			}
		}
		if IsBodyRead(r) {
			t.Error("the body counts as read")
		}
		defer b.account.Close()
		later = r
	}
	small, b := post(strings.NewReader(text[:Exempt-1]), Exempt-1)
	defer b.account.Close()
	if data, err := ReadBody(small, 1<<20); len(data) != Exempt-1 || err != nil {
		t.Errorf("a small body: %d bytes, %v", len(data), err)
	}
	owner.account.Close()
	if data, err := ReadBody(later, 1<<20); string(data) != text || err != nil || !IsBodyRead(later) {
		t.Errorf("when there is room again: %d bytes, %v", len(data), err)
	}
}

// A request that continues after ErrBusy finds its body unchanged.
func TestReadBody_NoRoomForTheRest(t *testing.T) {
	within(t, 10_000)
	text := strings.Repeat("0123456789", 4000)
	r, b := post(iotest.HalfReader(strings.NewReader(text)), -1)
	defer b.account.Close()
	var tooLarge *http.MaxBytesError
	if _, err := ReadBody(r, 1<<20); !errors.As(err, &tooLarge) || tooLarge.Limit != 10_000+Exempt-1 {
		t.Errorf("%v, want *http.MaxBytesError", err)
	}
	if got, err := io.ReadAll(r.Body); string(got) != text || err != nil {
		t.Errorf("the body reads %d bytes, %v", len(got), err)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose {
		t.Errorf("Read after Close: %v", err)
	}
}

// A body that can never fit is refused as too large, not as busy.
func TestReadBody_LargerThanTheBudget(t *testing.T) {
	const most = 10_000 + Exempt - 1
	within(t, 10_000)
	for _, size := range []int{most, most + 1} {
		for _, length := range []int64{int64(size), -1} {
			r, b := post(strings.NewReader(strings.Repeat("x", size)), length)
			data, err := ReadBody(r, 1<<20)
			var tooLarge *http.MaxBytesError
			if fits := size == most; fits && (len(data) != size || err != nil) || !fits && (!errors.As(err, &tooLarge) || tooLarge.Limit != most) {
				t.Errorf("%d bytes, of which the length is known to be %d: %d, %v", size, length, len(data), err)
			}
			b.account.Close()
		}
	}
}

func TestSet_NoBound(t *testing.T) {
	within(t, -1)
	r, b := post(strings.NewReader(strings.Repeat("x", 100_000)), 100_000)
	if _, err := ReadBody(r, 1<<63-1); err != nil {
		t.Error(err)
	}
	b.account.Close()
	b.account.Close()
}

// A wrong Content-Length changes nothing.
func TestReadBody_WrongLength(t *testing.T) {
	within(t, 0)
	for _, length := range []int64{0, 1, 5000} {
		r, b := post(strings.NewReader(strings.Repeat("x", 20_000)), length)
		if data, err := ReadBody(r, 1<<20); len(data) != 20_000 || err != nil {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		b.account.Close()
	}
}

// Reading after the request has ended takes no budget, because it would never be given back.
func TestAccount_AfterClose(t *testing.T) {
	within(t, 0)
	r, b := post(strings.NewReader(strings.Repeat("x", 20_000)), -1)
	b.account.Close()
	if _, err := ReadBody(r, 1<<20); err != nil || BudgetUsed() != 0 {
		t.Errorf("%d bytes are in use, %v", BudgetUsed(), err)
	}
}

// Without a guard, the budget is given back when the request's context ends.
func TestReadBody_WithoutOwner(t *testing.T) {
	within(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 20_000)))
	if _, err := ReadBody(r, 1<<20); err != nil || BudgetUsed() == 0 {
		t.Fatalf("%d bytes are in use, %v", BudgetUsed(), err)
	}
	cancel()
	eventuallyFree(t, func() {})
	runtime.KeepAlive(r)
}

// If the context never ends, garbage collection gives the budget back.
func TestReadBody_WithoutOwnerAndEnd(t *testing.T) {
	within(t, 0)
	func() {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 20_000)))
		if _, err := ReadBody(r, 1<<20); err != nil || BudgetUsed() == 0 {
			t.Fatalf("%d bytes are in use, %v", BudgetUsed(), err)
		}
		runtime.KeepAlive(r)
	}()
	eventuallyFree(t, runtime.GC)
}

func eventuallyFree(t *testing.T, help func()) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); BudgetUsed() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are still in use", BudgetUsed())
		}
		help()
	}
}

// However many bodies are read at once, they never exceed the budget, and all of it is given back.
func TestReadBody_ManyAtATime(t *testing.T) {
	const bytes = 300_000
	within(t, bytes)
	var all sync.WaitGroup
	var read, refused int
	var mu sync.Mutex
	for range 50 {
		all.Go(func() {
			for range 20 {
				r, b := post(iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 30_000))), -1)
				_, err := ReadBody(r, 1<<20)
				if used := BudgetUsed(); used > bytes {
					t.Errorf("%d bytes are in use, of %d", used, bytes)
				}
				b.account.Close()
				mu.Lock()
				if err == nil {
					read++
				} else if errors.Is(err, ErrBusy) {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if read == 0 || read+refused != 50*20 {
		t.Errorf("%d bodies were read, and %d refused", read, refused)
	}
}
