package demotest

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// An Answer is the answer to a request sent by a test.
type Answer struct {
	Status int
	Body   string
	Err    error
}

// Ask sends a request to the program and returns its answer. The body is JSON.
func (p *Program) Ask(t *testing.T, method, path, body string) Answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, p.URL(t)+path, strings.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	request.Header.Set("Content-Type", "application/json")
	return Do(t, request)
}

// Do sends a request on a separate connection and returns its answer. A long body that may be
// refused needs the header Expect: 100-continue. Otherwise the server may close the connection
// while the client still writes, and the client sees a reset in place of the answer.
func Do(t *testing.T, request *http.Request) Answer {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}}
	response, err := client.Do(request)
	if err != nil {
		return Answer{Err: err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, string(body), err}
}

// Post sends a request and its answer to the channel. The body is JSON.
func Post(client *http.Client, url, body string) <-chan Answer {
	answers := make(chan Answer, 1)
	go func() {
		response, err := client.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			answers <- Answer{Err: err}
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		answers <- Answer{response.StatusCode, string(body), err}
	}()
	return answers
}

// A Row is one row of a timeline.
type Row struct {
	Name, What, Bar string
	Status          int
	Waited          int // ms; 0 for refused requests
	Refused         bool
}

var rowPattern = regexp.MustCompile(`(?m)^  ([A-Z])  +(\S.*?) +([.#]*x?) *  (\d{3})  (?:waited +(\d+)ms, ran \d+ms|(refused) after \d+ms)$`)

// Rows returns the rows of all timelines in the output. It fails the test unless there are want of
// them.
func Rows(t *testing.T, output string, want int) (rows []Row) {
	t.Helper()
	for _, m := range rowPattern.FindAllStringSubmatch(output, -1) {
		status, _ := strconv.Atoi(m[4])
		waited, _ := strconv.Atoi(m[5])
		rows = append(rows, Row{Name: m[1], What: m[2], Bar: m[3], Status: status, Waited: waited, Refused: m[6] != ""})
	}
	if len(rows) != want {
		t.Fatalf("%d rows of %d can be read in:\n%s", len(rows), want, output)
	}
	return rows
}

// IsRow reports whether a line is a row of a timeline.
func IsRow(line string) bool { return rowPattern.MatchString(line) }
