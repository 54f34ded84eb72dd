package batch

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core/internal/lua"
)

// Said returns what an error reply of Redis says, beginning with its code if it has one. ok is false
// if err is no error reply.
func Said(err error) (text string, ok bool) {
	if err == nil { // before answer, which is allocated
		return "", false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return "", false
	}
	return strings.TrimPrefix(lua.Plain(answer.Error()), "ERR "), true
}

// HasCode reports whether err is an error reply of Redis that begins with one of the codes.
func HasCode(err error, codes ...string) bool {
	text, ok := Said(err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if strings.HasPrefix(text, code) {
			return true
		}
	}
	return false
}
