package coalesce

import (
	"net/http"
	"testing"
)

// A request for a part of an answer, with a precondition, for another protocol, with a body or with
// another method runs for itself.
func TestMayShare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method          string
		header          http.Header
		hasBody, unsafe bool
		want            bool
	}{
		{method: "GET", want: true},
		{method: "HEAD", want: true},
		{method: "POST"},
		{method: "DELETE"},
		{method: "POST", hasBody: true, unsafe: true, want: true},
		{method: "GET", hasBody: true},
		{method: "GET", header: http.Header{"Range": {"bytes=0-1"}}},
		{method: "POST", header: http.Header{"Range": {"bytes=0-1"}}, unsafe: true},
		{method: "GET", header: http.Header{"If-Match": {`"a"`}}},
		{method: "GET", header: http.Header{"If-Unmodified-Since": {"Thu, 01 Jan 1970 00:00:00 GMT"}}},
		{method: "GET", header: http.Header{"Upgrade": {"websocket"}}},
		{method: "GET", header: http.Header{"If-None-Match": {`"a"`}, "Cookie": {"a=b"}}, want: true},
	} {
		if got := mayShare(test.method, test.header, test.hasBody, test.unsafe); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// Each header of the answer, and each status, that keeps an answer to its own client.
func TestUnshared(t *testing.T) {
	t.Parallel()
	none := http.Header{}
	user := http.Header{"Authorization": {"Bearer a"}}
	for _, test := range []struct {
		request http.Header
		vary    []string
		user    bool
		status  int
		answer  http.Header
		want    string
	}{
		{none, nil, false, 200, none, ""},
		{none, nil, false, 404, none, ""},
		{none, nil, false, 500, none, ""},
		{none, nil, false, 401, none, becauseStatus},
		{none, nil, false, 429, none, becauseStatus},
		{none, nil, false, 304, none, becauseStatus},
		{none, nil, false, 101, none, becauseStatus},
		{none, nil, false, 206, none, becausePartial},
		{none, nil, false, 200, http.Header{"Content-Range": {"bytes 0-1/2"}}, becausePartial},
		{none, nil, false, 200, http.Header{"Set-Cookie": {"session=1"}}, becauseSetCookie},
		{none, nil, true, 500, http.Header{"Set-Cookie": {"session=1"}}, becauseSetCookie},
		{none, nil, false, 200, http.Header{"Cache-Control": {"max-age=3, Private"}}, becausePrivate},
		{none, nil, false, 200, http.Header{"Cache-Control": {`private="Set-Cookie"`}}, becausePrivate},
		{none, nil, true, 200, http.Header{"Cache-Control": {"public", "no-store"}}, becausePrivate},
		{none, nil, false, 200, http.Header{"Cache-Control": {"no-cache, max-age=0"}}, ""},
		{none, nil, false, 200, http.Header{"Vary": {"Accept"}}, becauseVary},
		{none, nil, false, 200, http.Header{"Vary": {"*"}}, becauseVary},
		{none, []string{"Accept"}, false, 200, http.Header{"Vary": {"accept"}}, ""},
		{none, []string{"Accept"}, false, 200, http.Header{"Vary": {"Accept, Origin"}}, becauseVary},
		{none, []string{"Accept"}, false, 200, http.Header{"Vary": {"Accept", "*"}}, becauseVary},
		{none, nil, false, 200, http.Header{"Trailer": {"Digest"}}, becauseTrailer},
		{user, nil, false, 200, none, becauseCredentials},
		{user, nil, false, 200, http.Header{"Cache-Control": {"max-age=9, public"}}, ""},
		{user, nil, false, 200, http.Header{"Cache-Control": {"max-age=9"}}, becauseCredentials},
		{user, nil, true, 200, none, ""},
		{user, []string{"Authorization"}, false, 200, none, ""},
		{user, []string{"Cookie"}, false, 200, none, becauseCredentials},
		{http.Header{"Cookie": {"session=1"}}, nil, false, 200, none, becauseCredentials},
		{http.Header{"Cookie": {"session=1"}}, []string{"Cookie"}, false, 200, none, ""},
		{http.Header{"Cookie": {"a=b"}, "Authorization": {"x"}}, []string{"Cookie"}, false, 200, none, becauseCredentials},
	} {
		head := answerHead{test.status, test.answer}
		if got := head.unshared(hasCredentials(test.request, test.vary, test.user), test.vary); got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// A client that has an answer already is told so, by its tag or by its date.
func TestNotModified(t *testing.T) {
	t.Parallel()
	const early, late = "Thu, 01 Jan 2026 00:00:00 GMT", "Fri, 02 Jan 2026 00:00:00 GMT"
	for _, test := range []struct {
		request, answer http.Header
		status          int
		want            bool
	}{
		{http.Header{}, http.Header{"Etag": {`"a"`}}, 200, false},
		{http.Header{"If-None-Match": {`"a"`}}, http.Header{"Etag": {`"a"`}}, 200, true},
		{http.Header{"If-None-Match": {`"a"`}}, http.Header{"Etag": {`"a"`}}, 404, false},
		{http.Header{"If-None-Match": {`"b,c", W/"a"`}}, http.Header{"Etag": {`"a"`}}, 200, true},
		{http.Header{"If-None-Match": {`"b"`, `"a"`}}, http.Header{"Etag": {`W/"a"`}}, 200, true},
		{http.Header{"If-None-Match": {`"b"`}}, http.Header{"Etag": {`"a"`}}, 200, false},
		{http.Header{"If-None-Match": {`a`}}, http.Header{"Etag": {`"a"`}}, 200, false},
		{http.Header{"If-None-Match": {`"a`}}, http.Header{"Etag": {`"a"`}}, 200, false},
		{http.Header{"If-None-Match": {`*`}}, http.Header{"Etag": {`"a"`}}, 200, true},
		{http.Header{"If-None-Match": {`""`}}, http.Header{}, 200, false},
		{http.Header{"If-None-Match": {`"b"`}, "If-Modified-Since": {late}}, http.Header{"Etag": {`"a"`}, "Last-Modified": {early}}, 200, false},
		{http.Header{"If-Modified-Since": {late}}, http.Header{"Last-Modified": {early}}, 200, true},
		{http.Header{"If-Modified-Since": {early}}, http.Header{"Last-Modified": {late}}, 200, false},
		{http.Header{"If-Modified-Since": {early}}, http.Header{}, 200, false},
	} {
		if got := notModified(test.request, test.status, test.answer); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
