package lua

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Redis before 7.0 puts text before the error of a command in a script. The code must be found
// there as well: it says whether something was executed, and what to change.
func TestPlain(t *testing.T) {
	t.Parallel()
	const run = "ERR Error running script (call to f_2248ea7f1064bd8a19bac4fad179cb7f74bc361a): "
	for text, want := range map[string]string{
		run + "@user_script:1: WRONGTYPE Operation against a key":                             "WRONGTYPE Operation against a key",
		run + "@user_script:1: @user_script: 1: -OOM command not allowed.\r\n":                "OOM command not allowed.",
		run + "@user_script:12: @user_script: 12: Unknown Redis command called from a script": "Unknown Redis command called from a script",
		"@user_script: 1: -READONLY You can't write":                                          "READONLY You can't write",
		"=[C]: -1: -OOM command not allowed":                                                  "OOM command not allowed",
		"OOM command not allowed script: 2248, on @user_script:1.":                            "OOM command not allowed script: 2248, on @user_script:1.",
		"WRONGKIND the key is a read/write lock":                                              "WRONGKIND the key is a read/write lock",
		"ERR unknown command 'LPOS', with args beginning with: 'a: 1: b'":                     "ERR unknown command 'LPOS', with args beginning with: 'a: 1: b'",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		var answer redis.Error
		if err := PlainError(replyError(text)); err.Error() != want || !errors.As(err, &answer) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := errors.New("@user_script: 1: no reply"); PlainError(err) != err || PlainError(nil) != nil {
		t.Error("an error that is no reply was changed")
	}
}
