package core

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
)

// A client's id is its name and a random part: web-1.4242.k3j9x2ab. Redis shows it in the wire
// owner of each hold, with a number: web-1.4242.k3j9x2ab:7. With the suffix of a writer, a wire
// owner has at most 64 bytes, which lets Redis keep small hashes compact.
const (
	longestClientName = 28
	randomLength      = 8
)

// newClientID returns the id of a client with the name from Options.ClientID, or with the name of
// this process. The random part keeps clients of one name apart: they must never share a wire
// owner.
func newClientID(name string) string {
	if name == "" {
		name = processName(os.Hostname, os.Getpid())
	}
	return name + "." + strings.ToLower(rand.Text()[:randomLength])
}

// processName returns the host and the process ID. Of a long host name it keeps the end, which
// tells the pods of a deployment apart.
func processName(hostname func() (string, error), pid int) string {
	host, err := hostname()
	if err != nil {
		host = ""
	}
	host, _, _ = strings.Cut(host, ".")
	host = strings.Map(func(r rune) rune {
		if isNameByte(byte(r)) && r < 0x80 {
			return r
		}
		return '-'
	}, host)
	suffix := "." + strconv.Itoa(pid)
	if most := longestClientName - len(suffix); len(host) > most {
		host = host[len(host)-most:]
	}
	host = strings.TrimLeft(host, "-_")
	if host == "" {
		host = "host"
	}
	return host + suffix
}

// checkClientName returns why a name cannot be part of an id, or an empty string.
func checkClientName(name string) string {
	switch {
	case len(name) > longestClientName:
		return "is longer than " + strconv.Itoa(longestClientName) + " characters"
	case strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 || !isNameByte(byte(r)) && r != '.' }):
		return "has a character other than letters, digits, '.', '_' and '-'"
	}
	return ""
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
