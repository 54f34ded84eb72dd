package access

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lab/redistest"
	"github.com/reqlock/reqlock/internal/redisacl"
)

// Each kind that needs a forbidden command is named once, and each command that the server lacks
// once with all kinds that need it.
func TestJudge(t *testing.T) {
	t.Parallel()
	needs := Needs("a")
	able := make([]lua.Ability, len(needs))
	judge := func(of func(Need) lua.Ability) (forbidden, lacking []string) {
		for i, n := range needs {
			able[i] = of(n)
		}
		return Judge(needs, able)
	}
	if forbidden, lacking := judge(func(Need) lua.Ability { return lua.Able }); forbidden != nil || lacking != nil {
		t.Errorf("with all permissions: %q, %q", forbidden, lacking)
	}
	forbidden, lacking := judge(func(Need) lua.Ability { return lua.Forbidden })
	if want := []string{"fair", "fenced", "read/write", "Once", "permits", "CountDownLatch"}; !slices.Equal(forbidden, want) || lacking != nil {
		t.Errorf("without permissions: %q, %q, want %q", forbidden, lacking, want)
	}
	forbidden, lacking = judge(func(n Need) lua.Ability {
		switch n.Words[0] {
		case "LPOS", "HSETNX":
			return lua.Unknown
		case "HGET":
			return lua.Forbidden
		}
		return lua.Able
	})
	if want := []string{"HSETNX (for read/write)", "LPOS (for fair)"}; !slices.Equal(lacking, want) || !slices.Equal(forbidden, []string{"Once"}) {
		t.Errorf("%q, %q", forbidden, lacking)
	}
}

// Each key of a kind's commands is the key of a lock. A word that Needs does not know would be a key
// outside of what the user may use, and the kind would count as forbidden.
func TestNeeds_KnowEachKey(t *testing.T) {
	t.Parallel()
	for _, n := range Needs("a") {
		for _, word := range n.Words[1:] {
			if len(word) > 1 && word == strings.ToUpper(word) && word != strings.ToLower(word) {
				t.Errorf("%s: %q: no key is called %s: add it to Needs", n.Kind, n.Words, word)
			}
		}
	}
}

// A Probe finds every permission that is missing at once, and changes nothing.
func TestProbe(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	p := &Probe{
		Server:  srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password, o.DisableIdentity = "orders", "secret", true }),
		Key:     "reqlock:ping:1",
		Keys:    "reqlock:*",
		Own:     "reqlock:client:a",
		Publish: []string{"PUBLISH", "SPUBLISH"},
		Plain:   true,
		Sharded: true,
		Timeout: time.Minute,
	}
	for rules, want := range map[string][]string{
		"~reqlock:* &* +@all": nil,
		"~reqlock:* &* +@all -hget -hset -spublish -sunsubscribe": {"+hget", "+spublish", "+hset", "+sunsubscribe"},
		"~other:* &* +@all":                          {"~reqlock:*"},
		"~reqlock:* &reqlock:client:* +@all":         {"&redisson_lock__channel:*"},
		"~reqlock:* &redisson_lock__channel:* +@all": {"&reqlock:client:*"},
		"~other:* &other +@all -cluster|slots -ping": {"+ping", "~reqlock:*", "&redisson_lock__channel:*", "&reqlock:client:*", "+cluster|slots"},
	} {
		if err := rdb.Do(t.Context(), words("ACL SETUSER orders reset on >secret "+rules)...).Err(); err != nil {
			t.Fatal(err)
		}
		denied, err := p.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := rulesOf(denied); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", rules, got, want)
		}
	}
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// A fault that is no denial is an error.
func TestProbe_Faults(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := &Probe{
		Server: srv.ClientWith(t, func(o *redis.Options) { o.Username, o.Password, o.MaxRetries = "nobody", "wrong", -1 }),
		Key:    "a", Keys: "a", Own: "b", Publish: []string{"PUBLISH"}, Plain: true, Timeout: time.Minute,
	}
	if denied, err := p.Run(t.Context()); !redis.HasErrorPrefix(err, "WRONGPASS") {
		t.Errorf("a wrong password: %v, %v", denied, err)
	}
	srv.Kill(t)
	if denied, err := p.Run(t.Context()); err == nil {
		t.Errorf("without a server: %v", denied)
	}
}

func words(text string) (args []any) {
	for word := range strings.FieldsSeq(text) {
		args = append(args, word)
	}
	return args
}

// rulesOf returns each rule once, as the error of Ping has them.
func rulesOf(denied []redisacl.Denial) (rules []string) {
	for _, d := range denied {
		if rule := d.Rule(); !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	return rules
}
