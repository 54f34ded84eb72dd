package adaptertest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A problem is the body of a refusal, RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// wantProblem fails the test unless the answer is the refusal urn:reqlock:problem:problemType with
// that Retry-After; "": without the header.
func (a answer) wantProblem(fx *fixture, status int, problemType, retryAfter string) {
	fx.Helper()
	if a.err != nil {
		fx.Errorf("no answer: %v", a.err)
		return
	}
	if strings.Contains(a.body+fmt.Sprint(a.header), key) {
		fx.Errorf("the answer holds the key: %v %s", a.header, a.body)
	}
	var p problem
	in := json.NewDecoder(strings.NewReader(a.body))
	in.DisallowUnknownFields()
	if err := in.Decode(&p); err != nil {
		fx.Errorf("the body of the answer, status %d, is not a problem: %v: %q", a.status, err, a.body)
		return
	}
	if a.status != status || p.Status != status || p.Type != "urn:reqlock:problem:"+problemType || p.Title == "" || p.Detail == "" {
		fx.Errorf("answer %d %+v, want %d %s", a.status, p, status, problemType)
	}
	for name, want := range map[string]string{
		"Content-Type":   "application/problem+json",
		"Content-Length": strconv.Itoa(len(a.body)),
		"Cache-Control":  "no-store",
		"Retry-After":    retryAfter,
	} {
		if got := a.header.Get(name); got != want {
			fx.Errorf("header %s of %s is %q, want %q", name, problemType, got, want)
		}
	}
}
