package redistest

import (
	"fmt"
	"slices"
	"strings"
)

const (
	configFile = "redis.conf"
	logFile    = "redis.log"
	outputFile = "output"
)

// owned are the directives that only this package may set.
var owned = []string{"bind", "port", "daemonize", "dir", "logfile", "requirepass"}

// config returns the text of redis.conf. The test's directives come last, because Redis uses the
// last of each name.
func config(port int, dir string, directives []string) (string, error) {
	lines := []string{
		"bind 127.0.0.1",
		fmt.Sprintf("port %d", port),
		"daemonize no",
		fmt.Sprintf("dir %q", dir),
		"logfile " + logFile,
		"loglevel notice",
		"always-show-logo no",
		`save ""`,
		"appendonly no",
	}
	for _, d := range directives {
		if err := checkDirective(d); err != nil {
			return "", err
		}
	}
	return strings.Join(append(lines, directives...), "\n") + "\n", nil
}

func checkDirective(d string) error {
	words := strings.Fields(d)
	if len(words) < 2 || strings.ContainsAny(d, "\r\n") {
		return fmt.Errorf(`redistest: directive %q: want one line of redis.conf, such as "appendonly yes"`, d)
	}
	if slices.Contains(owned, strings.ToLower(words[0])) {
		return fmt.Errorf("redistest: directive %q: %s is set by the package", d, words[0])
	}
	return nil
}
