// Package redisurl reads URLs of Redis for programs that must not print a password.
package redisurl

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Wanted is the form of a URL of one server.
const Wanted = "redis://[user:password@]host:port[/db], rediss://… for TLS, or unix:///path"

// ErrHidden is the error of a URL whose password cannot be told from the rest.
var ErrHidden = errors.New("not a usable URL (not shown, it may contain a password); want " + Wanted +
	", with special characters of the password percent-encoded")

// Parse returns the parts of a URL, or ErrHidden. An error of net/url would quote the URL.
//
// A password with an unescaped "/", "?" or "#" ends the host too early: the port of
// redis://default:/s3cret@host:6379 is empty, and its path begins with the password. So the "@"
// must not be in a later part.
func Parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Scheme == "" || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return nil, ErrHidden
	}
	return u, nil
}

// Options is redis.ParseURL with errors that may be printed.
func Options(raw string) (*redis.Options, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	opts, err := redis.ParseURL(raw)
	if err != nil {
		return nil, Explain(u, err)
	}
	return opts, nil
}

// Explain returns why go-redis refuses a URL, without the values that its error quotes: the path of
// redis://default:/s3cret is a password, too.
func Explain(u *url.URL, err error) error {
	text := strings.TrimPrefix(err.Error(), "redis: ")
	switch u.Scheme {
	case "unix":
		if u.Path == "" {
			return errors.New("empty unix socket path")
		}
	case "redis", "rediss":
		if !isDatabase(u.Path) {
			return errors.New("invalid database number; the path is a number, such as /0")
		}
	default:
		return errors.New("invalid URL scheme: " + u.Scheme)
	}
	if strings.HasPrefix(text, "unexpected option: ") { // which lists the names of parameters
		return errors.New(text)
	}
	for name := range u.Query() {
		if strings.Contains(text, " "+name+" ") {
			return errors.New("invalid value of " + name)
		}
	}
	return errors.New("invalid value of a parameter")
}

// Shown returns a URL without user, password and parameters, and without a path that is neither a
// number nor a socket.
func Shown(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host}
	if u.Scheme == "unix" || isDatabase(u.Path) {
		shown.Path = u.Path
	}
	text := shown.String()
	if shown.Path != u.Path {
		text += "/***"
	}
	if u.User != nil {
		text = strings.Replace(text, "://", "://***@", 1)
	}
	return text
}

// isDatabase reports whether a path is a number, or missing.
func isDatabase(path string) bool {
	path = strings.Trim(path, "/")
	_, err := strconv.Atoi(path)
	return path == "" || err == nil
}
