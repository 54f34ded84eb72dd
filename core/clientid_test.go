package core

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestClientID_NamesTheProcess(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		host string
		err  error
		pid  int
		want string
	}{
		{host: "web-1", pid: 4242, want: "web-1.4242"},
		{host: "web-1.example.com", pid: 1, want: "web-1.1"},
		{host: "payments-service-7d4b9c6f5-abcde", pid: 1, want: "ts-service-7d4b9c6f5-abcde.1"},
		{host: "a-host-name-of-many-words-whose-end-counts", pid: 4194304, want: "rds-whose-end-counts.4194304"},
		{host: "söme host:1", pid: 7, want: "s-me-host-1.7"},
		{host: "--", pid: 7, want: "host.7"},
		{host: "", pid: 7, want: "host.7"},
		{err: errors.New("no name"), pid: 7, want: "host.7"},
	} {
		got := processName(func() (string, error) { return test.host, test.err }, test.pid)
		if got != test.want || checkClientName(got) != "" {
			t.Errorf("%q, %d: %q %s, want %q", test.host, test.pid, got, checkClientName(got), test.want)
		}
	}
}

// Clients of one name have different ids. A wire owner with a writer's suffix stays within the 64
// bytes up to which Redis keeps a small hash compact.
func TestClientID_IsUnique(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", longestClientName)
	ids := make(map[string]bool)
	for range 1000 {
		ids[newClientID(longest)] = true
	}
	if len(ids) != 1000 {
		t.Errorf("%d of 1000 ids are different", len(ids))
	}
	fx := newRedis(t)
	c := fx.newLocks(t, func(o *Options) { o.ClientID = longest })
	write := mustAcquire(t, bg, c.ReadWriteLock("a").Write(), AcquireOptions{})
	form := regexp.MustCompile(`^n{28}\.[a-z2-7]{8}:[1-9][0-9]*$`)
	if field := holdOf(write).wire; !form.MatchString(field) {
		t.Errorf("the wire owner is %q", field)
	}
	if largest := c.id + ":18446744073709551615:write"; len(largest) > 64 {
		t.Errorf("a wire owner may have %d bytes", len(largest))
	}
	if encoding := fx.rdb.ObjectEncoding(bg, "a").Val(); encoding != "listpack" && encoding != "ziplist" {
		t.Errorf("Redis keeps the lock as a %s", encoding)
	}
	mustRelease(t, write)
}

func TestClientID_Refused(t *testing.T) {
	t.Parallel()
	rdb := newEmbeddedRedis(t).rdb
	for name, why := range map[string]string{
		strings.Repeat("n", 29): "longer than 28",
		"web 1":                 "a character other than",
		"web:1":                 "a character other than",
		"wëb":                   "a character other than",
	} {
		_, err := New(rdb, Options{ClientID: name})
		wantErr(t, name, err, ErrInvalidOptions)
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "ClientID") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
