package redisop

import (
	"crypto/x509"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/reqlock/reqlock/core/internal/batch"
)

// tableErrors has an error for each row of the table in docs/reference/failures.md.
var tableErrors = map[string]error{
	"`READONLY`":                redisError("READONLY You can't write against a read only replica. script: 1"),
	"`LOADING`":                 redisError("LOADING Redis is loading the dataset in memory"),
	"`TRYAGAIN`":                redisError("TRYAGAIN Multiple keys request during rehashing of slot"),
	"`MASTERDOWN`":              redisError("MASTERDOWN Link with MASTER is down"),
	"`CLUSTERDOWN`":             redisError("CLUSTERDOWN Hash slot not served"),
	"`MOVED` (a plain client)":  redisError("MOVED 1 127.0.0.1:7000"),
	"`BUSY`":                    redisError("BUSY Redis is busy running a script."),
	"`MISCONF`":                 redisError("MISCONF Redis is configured to save RDB snapshots"),
	"`NOREPLICAS`":              redisError("NOREPLICAS Not enough good replicas to write."),
	"`OOM`":                     redisError("OOM command not allowed when used memory > 'maxmemory'."),
	"`NOPERM`":                  redisError("NOPERM User a has no permissions"),
	"`NOAUTH`":                  redisError("NOAUTH Authentication required."),
	"`unknown command`":         redisError("ERR unknown command 'EVALSHA', with args beginning with: "),
	"`WRONGTYPE`":               redisError("WRONGTYPE Operation against a key holding the wrong kind of value"),
	"TLS does not fit":          &batch.ConnectError{Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "a"}},
	"not reached, closed":       &batch.ConnectError{Err: io.EOF},
	"no answer in time":         batch.ErrUnanswered,
	"no connection in the pool": &FaultError{faultPoolEmpty, ErrTimeout},
}

// cells returns the cells of a row for an error to a client of one server.
func cells(err error) []string {
	r := &Runner{}
	c := r.classify(err)
	row := []string{"no", "fails", "fail", "opens", ""}
	if c.end == failed || c.end == lost {
		row[0] = "maybe"
	}
	switch c.end {
	case moved:
		row[1], row[2] = "tries again, on a new connection", "try again"
	case busy, lost:
		row[1], row[2] = "tries again", "try again"
	case away:
		row[2] = "try again"
	}
	if c.fault == faultReadOnly || c.fault != nil && c.fault.Permanent || IsWrongType(err) {
		row[3] = "never"
	}
	if c.fault != nil {
		row[4] = "`" + c.fault.Class + "`"
	}
	return row
}

// The table for operators is the one that the engine goes by.
func TestTable_IsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/reference/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What Redis says\n")
	found := 0
	for line := range strings.Lines(table) {
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		err, known := tableErrors[row[0]]
		switch {
		case !strings.HasPrefix(line, "|"), row[0] == "error", strings.HasPrefix(row[0], "---"):
			continue
		case !known:
			t.Errorf("no error for the row %s", row[0])
			continue
		}
		found++
		if want := cells(err); strings.Join(row[1:], "|") != strings.Join(want, "|") {
			t.Errorf("docs/reference/failures.md has %q, want %s | %s", line, row[0], strings.Join(want, " | "))
		}
	}
	if found != len(tableErrors) {
		t.Errorf("docs/reference/failures.md has %d of %d rows", found, len(tableErrors))
	}
}
