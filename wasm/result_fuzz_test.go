package wasm

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reqlock/reqlock/guard"
)

// Whatever a guest sets, in any order, the result is a policy within the operator's limits, an
// answer that can be sent, or an error that blames the guest.
func FuzzResult(f *testing.F) {
	f.Add("key", "header", uint32(200), uint32(0), uint64(0), uint64(0), "", byte(0))
	f.Add("", "\xff", uint32(99), uint32(6), uint64(1<<63), uint64(1000), "text", byte(0xff))
	f.Add(strings.Repeat("k", maxKeyLen+1), "a\nb", uint32(599), uint32(2), uint64(999), uint64(1001), "line\x00\n\u202e", byte(0x55))
	f.Add("one", "two", uint32(200), uint32(1<<31), uint64(0), uint64(0), "", byte(0x93))
	f.Fuzz(func(t *testing.T, key, header string, status, mode uint32, wait, lease uint64, text string, steps byte) {
		cfg := &Config{MaxWait: time.Second, MaxLease: 2 * time.Second}
		c := newCall(cfg, &http.Request{Header: http.Header{keyHeader: {"the client's"}}}, guard.Policy{})
		err := guest(func() {
			for i, step := range []func(){
				func() {
					if err := c.addKey(key); err != nil {
						panic(abort{err})
					}
				},
				func() { c.editHeaders(kindRequest)[keyHeader] = []string{header, key} },
				func() { c.policy.WaitTime = duration("set_wait_ms", wait, "MaxWait", cfg.MaxWait) },
				func() { c.policy.LeaseTime = duration("set_lease_ms", lease, "MaxLease", cfg.MaxLease) },
				func() { c.policy.Mode, c.policy.Fenced = modes[mode%uint32(len(modes))], mode >= 1<<31 },
				func() { c.denial = denied(refusingStatus(status), text) },
				func() { c.policy.Skip = true },
				func() { c.next = true },
			} {
				if steps&(1<<i) != 0 {
					step()
				}
			}
			c.scratch.status = status
		})
		if err == nil {
			err = c.finish()
		}
		var answer *guard.Error
		switch {
		case errors.As(err, &answer):
			if answer.Status < 400 || answer.Status > 599 || len(answer.Detail) > maxDetail || !utf8.ValidString(answer.Detail) ||
				strings.ContainsFunc(answer.Detail, unicode.IsControl) {
				t.Errorf("the answer is %+v", answer)
			}
		case err != nil:
			if !errors.Is(err, ErrBadGuest) && !errors.Is(err, ErrNoKey) {
				t.Errorf("error %v", err)
			}
		default:
			wantPolicy(t, cfg, c.policy)
		}
	})
}

// guest runs what a guest does, and returns the error that ended its call.
func guest(run func()) (err error) {
	defer func() {
		if a, ok := recover().(abort); ok {
			err = a.error
		}
	}()
	run()
	return nil
}

func wantPolicy(t *testing.T, cfg *Config, p guard.Policy) {
	t.Helper()
	if p.WaitTime < 0 || p.WaitTime > cfg.MaxWait || p.LeaseTime < 0 || p.LeaseTime > cfg.MaxLease {
		t.Errorf("the policy is %+v", p)
	}
	if p.Skip {
		return
	}
	if n := len(p.Keys); n == 0 || n > maxKeys || n > 1 && (p.Mode == guard.ModeFenced || p.Fenced) {
		t.Errorf("%d keys with mode %v, fenced %v", n, p.Mode, p.Fenced)
	}
	for _, key := range p.Keys {
		if key == "" || len(key) > maxKeyLen || !utf8.ValidString(key) || key == "the client's" {
			t.Errorf("key %q", key)
		}
	}
}
