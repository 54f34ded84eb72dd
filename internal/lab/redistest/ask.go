package redistest

import (
	"errors"
	"net"
	"time"
)

// ask sends one command over a new connection and returns the raw reply; an error reply is an
// error.
func ask(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp4", addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := conn.Write(encode(args...)); err != nil {
		return "", err
	}
	f, err := newRESPReader(conn).reply()
	if err == nil && f.kind == '-' {
		err = errors.New(string(f.raw[1 : len(f.raw)-2]))
	}
	return string(f.raw), err
}
