package redistest

import "fmt"

// binaryVariable is the environment variable that overrides the redis-server in PATH.
const binaryVariable = "REQLOCK_REDIS_SERVER"

const installHint = "install it with: apt-get update && apt-get install -y redis-server"

// findBinary returns the path of redis-server: override if it is set, otherwise the one in PATH.
func findBinary(override string, lookPath func(string) (string, error)) (string, error) {
	if override != "" {
		path, err := lookPath(override)
		if err != nil {
			return "", fmt.Errorf("redistest: %s=%q is not an executable redis-server (%w); set it to the path of one, or unset it and %s",
				binaryVariable, override, err, installHint)
		}
		return path, nil
	}
	path, err := lookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redistest: these tests need a real redis-server (%w); %s; or set %s to its path",
			err, installHint, binaryVariable)
	}
	return path, nil
}
