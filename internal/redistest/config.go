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

// owned are the directives that the package sets itself and relies on.
var owned = []string{"bind", "port", "daemonize", "dir", "logfile", "requirepass"}

// config is the text of redis.conf. The directives of the test come last: Redis takes the last one of a name.
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
