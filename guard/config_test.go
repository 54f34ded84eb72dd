package guard

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/keyfuncs"
)

var key = keyfuncs.Const("k")

func TestValidate_Accepts(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"one key":      {Key: key},
		"several keys": {Keys: []keyfuncs.Func{key, key}},
		"a policy":     {Policy: func(*http.Request, *Policy) error { return nil }},
		"no bound":     {Key: key, MaxWaiters: -1},
		"a limit":      {Keys: []keyfuncs.Func{key, key}, Limit: 2, WaitTime: time.Second, FailOpen: true, MaxHold: time.Second, MaxWaiters: 1},
		"everything": {
			Key: key, WaitTime: time.Second, LeaseTime: time.Millisecond, MaxHold: time.Second, MaxWaiters: 1,
			BufferBody: 1, Mode: ModeExclusive, Name: Exact, RetryAfter: time.Millisecond, FailOpen: true,
		},
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidate_Refuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no key":               {func(c *Config) { c.Key = nil }, "exactly one of Key, Keys and Policy; 0 are set"},
		"two ways":             {func(c *Config) { c.Keys = []keyfuncs.Func{key} }, "exactly one of Key, Keys and Policy; 2 are set"},
		"a nil key":            {func(c *Config) { c.Key, c.Keys = nil, []keyfuncs.Func{key, nil} }, "Keys[1] is nil"},
		"WaitForever":          {func(c *Config) { c.WaitTime = core.WaitForever }, "WaitTime is WaitForever"},
		"WaitTime":             {func(c *Config) { c.WaitTime = -time.Second }, "WaitTime is -1s"},
		"LeaseTime":            {func(c *Config) { c.LeaseTime = -time.Second }, "LeaseTime is -1s"},
		"short LeaseTime":      {func(c *Config) { c.LeaseTime = time.Microsecond }, "LeaseTime is 1µs"},
		"WaitTime, no unit":    {func(c *Config) { c.WaitTime = 5 }, "WaitTime is 5ns; use 0 for 409 at once, or at least 1ms"},
		"MaxHold, no unit":     {func(c *Config) { c.MaxHold = 30 }, "MaxHold is 30ns; use 0 for no end, or at least 1ms"},
		"MaxHold":              {func(c *Config) { c.MaxHold = -1 }, "MaxHold is -1ns"},
		"MaxWaiters":           {func(c *Config) { c.MaxWaiters = -2 }, "MaxWaiters is -2"},
		"BufferBody":           {func(c *Config) { c.BufferBody = -1 }, "BufferBody is -1"},
		"RetryAfter, no unit":  {func(c *Config) { c.RetryAfter = 5 }, "RetryAfter is 5ns; use 0 for 1s, or at least 1ms"},
		"RetryAfter":           {func(c *Config) { c.RetryAfter = -1 }, "RetryAfter is -1ns"},
		"no such Mode":         {func(c *Config) { c.Mode = 99 }, "Mode is 99"},
		"Mode below":           {func(c *Config) { c.Mode = -1 }, "Mode is -1"},
		"Fenced set, two keys": {func(c *Config) { c.Mode, c.Fenced, c.Keys, c.Key = ModeFair, true, []keyfuncs.Func{c.Key, c.Key}, nil }, "the option Fenced is set, but several locks"},
		"Fenced, ModeRead":     {func(c *Config) { c.Mode, c.Fenced = ModeRead, true }, "readers have no tokens"},
		"Fenced, Locker": {func(c *Config) {
			c.Fenced, c.Locker = true, func(*http.Request, string) core.Locker { return nil }
		}, "have it make fenced locks"},
		"Fenced, two keys":  {func(c *Config) { c.Mode, c.Keys, c.Key = ModeFenced, []keyfuncs.Func{c.Key, c.Key}, nil }, "Mode is Fenced"},
		"Limit":             {func(c *Config) { c.Limit = -3 }, "Limit is -3; use 0 for a lock"},
		"Delegates":         {func(c *Config) { c.Delegates = 3 }, "Delegates is 3; use DelegatesNone"},
		"Delegates, Fenced": {func(c *Config) { c.Delegates, c.Fenced = DelegatesOneAtATime, true }, "two locks have no common token; use DelegatesTogether"},
		"Delegates, Locker": {func(c *Config) {
			c.Delegates, c.Locker = DelegatesOneAtATime, func(*http.Request, string) core.Locker { return nil }
		}, "and Locker makes the lock"},
		"Delegates, mode":  {func(c *Config) { c.Delegates, c.Mode = DelegatesOneAtATime, ModeFenced }, "use DelegatesTogether"},
		"Limit 1":          {func(c *Config) { c.Limit = 1 }, "Limit is 1, which is not a lock"},
		"Limit, ModeFair":  {func(c *Config) { c.Limit, c.Mode = 5, ModeFair }, "Mode is Fair, but permits are first come, first served only within a process"},
		"Limit, ModeWrite": {func(c *Config) { c.Limit, c.Mode = 5, ModeWrite }, "Mode is Write, which is a kind of lock"},
		"Limit, Fenced":    {func(c *Config) { c.Limit, c.Fenced = 5, true }, "several requests are inside at a time, so none has a token"},
		"Limit, Locker": {func(c *Config) {
			c.Limit, c.Locker = 5, func(*http.Request, string) core.Locker { return nil }
		}, "have it make a core.Semaphore"},
		"Mode and Locker": {func(c *Config) { c.Mode, c.Locker = ModeRead, func(*http.Request, string) core.Locker { return nil } }, "Mode is Read, but Config.Locker"},
	} {
		cfg := Config{Key: key}
		test.change(&cfg)
		err := cfg.Validate()
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: Validate = %v; want ErrInvalidConfig that says %q", name, err, test.says)
		}
		if _, newErr := New(nil, cfg); newErr == nil {
			t.Errorf("%s: New accepts it", name)
		}
	}
}

func TestValidate_NamesAllProblems(t *testing.T) {
	t.Parallel()
	err := Config{WaitTime: -2, LeaseTime: -3, MaxHold: -4, MaxWaiters: -5, BufferBody: -6, RetryAfter: -7, Mode: 8, Limit: -9}.Validate()
	for _, field := range []string{"Key, Keys", "WaitTime", "LeaseTime", "MaxHold", "MaxWaiters", "BufferBody", "RetryAfter", "Mode", "Limit"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q is not in %v", field, err)
		}
	}
}

func TestNew_NeedsLocks(t *testing.T) {
	t.Parallel()
	if _, err := New(nil, Config{Key: key}); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("New without a client: %v", err)
	}
	if _, err := New(nil, Config{Key: key, Locker: func(*http.Request, string) core.Locker { return nil }}); err != nil {
		t.Errorf("New with a Locker: %v", err)
	}
	rdb := redis.NewClient(&redis.Options{}) // it is never used
	defer rdb.Close()
	locks, err := core.New(rdb, core.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	if _, err := New(locks, Config{Key: key, Delegates: DelegatesTogether}); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "core.Options.Delegation") {
		t.Errorf("New with Delegates and a client that verifies no tokens: %v", err)
	}
}

func TestMode_String(t *testing.T) {
	t.Parallel()
	for mode, want := range map[Mode]string{ModeExclusive: "Exclusive", ModeReadWrite: "ReadWrite", 6: "Mode(6)", -1: "Mode(-1)"} {
		if got := mode.String(); got != want {
			t.Errorf("String = %q, want %q", got, want)
		}
	}
}

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	keys := []keyfuncs.Func{key, key}
	cfg := Config{Keys: keys}.withDefaults()
	keys[0] = nil
	if cfg.Keys[0] == nil {
		t.Error("a Guard's keys change with the caller's slice")
	}
	if cfg.RetryAfter != time.Second || cfg.ErrorHandler == nil || cfg.Logger == nil || cfg.Name("k") != "reqlock:k" || cfg.Observe != nil {
		t.Errorf("defaults are %+v", cfg)
	}
}
