package batch

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// errProtocol is the error of a connection whose peer sends what no script replies with.
var errProtocol = errors.New("the reply is not one that Redis gives to a script")

// appendCommand appends a command, as Redis reads it.
func appendCommand(b []byte, args []any) []byte {
	b = appendLength(b, '*', len(args))
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			b = append(append(appendLength(b, '$', len(arg)), arg...), "\r\n"...)
		case []byte:
			b = append(append(appendLength(b, '$', len(arg)), arg...), "\r\n"...)
		case int:
			b = appendInteger(b, int64(arg))
		case int64:
			b = appendInteger(b, arg)
		default:
			text := fmt.Sprint(arg)
			b = append(append(appendLength(b, '$', len(text)), text...), "\r\n"...)
		}
	}
	return b
}

func appendLength(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
}

func appendInteger(b []byte, n int64) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	return append(append(appendLength(b, '$', len(text)), text...), "\r\n"...)
}

// parseReply parses the first reply of what was received so far. It returns its length, 0 if it is
// not complete. push reports that it is a message of RESP3 that answers no command. The value is what
// go-redis would return: an int64, a string, a list, nil, or an error reply, which may be in a list.
func parseReply(b []byte) (value any, length int, push bool, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		return nil, 0, false, nil
	}
	if end < 2 || b[end-1] != '\r' {
		return nil, 0, false, errProtocol
	}
	kind, line, length := b[0], b[1:end-1], end+1
	switch kind {
	case '+':
		return string(line), length, false, nil
	case '-':
		return replyError(string(line)), length, false, nil
	case '_':
		return nil, length, false, nil
	case '#':
		return string(line) == "t", length, false, nil
	case '(', ',': // no script replies with such numbers, so there is no reader for them
		return odd{kind, string(line)}, length, false, nil
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	switch {
	case err != nil:
		return nil, 0, false, errProtocol
	case kind == ':':
		return n, length, false, nil
	case n < 0:
		return nil, length, false, nil
	case n > mostText:
		return nil, 0, false, errProtocol
	}
	switch kind {
	case '$', '=':
		value, length, err = parseText(b, length, n)
	case '!':
		if value, length, err = parseText(b, length, n); length > 0 {
			value = replyError(value.(string))
		}
	case '*', '>', '~':
		value, length, err = parseList(b, length, n)
	case '%':
		if value, length, err = parseList(b, length, 2*n); length > 0 {
			value = odd{kind, value}
		}
	default:
		return nil, 0, false, errProtocol
	}
	return value, length, kind == '>', err
}

// An odd is a reply of a type that no script replies with.
type odd struct {
	kind  byte
	value any
}

// mostText is the longest text that Redis sends: proto-max-bulk-len, by default.
const mostText = 512 << 20

func parseText(b []byte, from int, n int64) (value any, length int, err error) {
	end := from + int(n)
	switch {
	case len(b) < end+2:
		return nil, 0, nil
	case b[end] != '\r' || b[end+1] != '\n':
		return nil, 0, errProtocol
	}
	return string(b[from:end]), end + 2, nil
}

// parseList parses the elements of a list.
func parseList(b []byte, from int, n int64) (value any, length int, err error) {
	if int64(len(b)-from) < 3*n { // the least that an element takes
		return nil, 0, nil
	}
	list := make([]any, n)
	for i := range list {
		element, size, push, err := parseReply(b[from:])
		if err != nil || size == 0 {
			return nil, 0, err
		}
		if push {
			return nil, 0, errProtocol
		}
		list[i], from = element, from+size
	}
	return list, from, nil
}

// replyError returns an error reply of the type that go-redis gives to those it has no own type for.
func replyError(text string) error { return like(redis.ErrNoScript, text) }

func like[E ~string](_ E, text string) E { return E(text) }
