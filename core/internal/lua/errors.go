package lua

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wrapped matches what Redis before 7.0, and KeyDB, put before the error of a command in a script:
//
//	ERR Error running script (call to f_<sha>): @user_script:1: @user_script: 1: -OOM command not …
var wrapped = regexp.MustCompile(`^(?:ERR Error running script \(call to f_[0-9a-f]+\): )?(?:\S+: ?-?[0-9]+: )+-?`)

// Plain returns the text of an error reply as Redis 7.0 and later give it: it begins with the code
// of the error, also if a command in a script failed.
func Plain(text string) string {
	return strings.TrimSpace(wrapped.ReplaceAllString(text, ""))
}

// PlainError returns an error whose text is Plain, if err is an error reply. Other errors are
// returned unchanged.
func PlainError(err error) error {
	if err == nil { // before answer, which is allocated
		return nil
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	if text := Plain(answer.Error()); text != answer.Error() {
		return replyError(text)
	}
	return err
}
