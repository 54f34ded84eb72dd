package memredis

import (
	"bytes"
	"fmt"
	"strconv"
)

// ParseCommands returns the complete commands in b, and the rest of b. It panics if a client does
// not speak RESP.
func ParseCommands(b []byte) (commands [][]string, rest []byte) {
	for {
		args, after, whole := parseCommand(b)
		if !whole {
			return commands, b
		}
		commands, b = append(commands, args), after
	}
}

func parseCommand(b []byte) (args []string, rest []byte, whole bool) {
	n, b, ok := parseLength(b, '*')
	if !ok {
		return nil, nil, false
	}
	for range n {
		var size int
		if size, b, ok = parseLength(b, '$'); !ok || len(b) < size+2 {
			return nil, nil, false
		}
		args, b = append(args, string(b[:size])), b[size+2:]
	}
	return args, b, true
}

func parseLength(b []byte, kind byte) (n int, rest []byte, whole bool) {
	line, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found {
		return 0, nil, false
	}
	if len(line) < 2 || line[0] != kind {
		panic(fmt.Sprintf("memredis: invalid RESP from a client: %q", line))
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil {
		panic(err)
	}
	return n, rest, true
}

// AppendReply appends a reply in RESP 2.
func AppendReply(b []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		b = append(b, "$-1"...)
	case int64:
		b = strconv.AppendInt(append(b, ':'), r, 10)
	case Status:
		b = append(append(b, '+'), r...)
	case Error:
		b = append(append(b, '-'), r...)
	case string:
		b = strconv.AppendInt(append(b, '$'), int64(len(r)), 10)
		b = append(append(b, "\r\n"...), r...)
	case []any:
		b = strconv.AppendInt(append(b, '*'), int64(len(r)), 10)
		b = append(b, "\r\n"...)
		for _, item := range r {
			b = AppendReply(b, item)
		}
		return b
	}
	return append(b, "\r\n"...)
}
