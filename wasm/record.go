package wasm

import (
	"log/slog"
	"strings"
	"time"

	"github.com/reqlock/reqlock/guard"
)

// A record is the decision of a guest of ABI version 2, in its memory: this head, then the entries.
// All numbers are little-endian.
//
//	 0 u32 action       what to do with the request
//	 4 i32 mode         kind of lock; -1: the guard's
//	 8 i64 wait_ms      -1: the guard's
//	16 i64 lease_ms     -1: the guard's
//	24 u32 status       of a refusal; 400 to 599
//	28 u32 retry_after  of a refusal, in seconds; 0: none
//	32 u32 count        of entries
//	36 {u32 kind, u32 address, u32 length} of each entry
const (
	recordLen  = 36
	entryLen   = 12
	maxEntries = 64
)

// The actions of a record.
const (
	actionLock uint32 = iota
	actionSkip
	actionDeny
	actionNeedsBody // the body that the request lacks; see bodyMissing
)

// The kinds of entries.
const (
	entryKey     uint32 = 1 // The entry is the key of a lock.
	entryDetail  uint32 = 2 // The entry is the detail of a refusal's problem.
	entryTitle   uint32 = 3 // The entry is the title of a refusal's problem.
	entryProblem uint32 = 4 // The entry is the end of the type of a refusal's problem.
	entryReason  uint32 = 5 // The entry is the header Reqlock-Reason of a refusal.
	entryField   uint32 = 6 // The entry is name=value, for logs.
	entryToken   uint32 = 7 // The holder of the lock gets a fencing token; the text is empty.
	entryLimit   uint32 = 8 // So many requests run at a time: an i32. The guard refuses what can never work.
)

const (
	maxTitle   = 80  // bytes
	maxProblem = 64  // bytes
	maxReason  = 128 // bytes
	maxField   = 256 // bytes of name=value
	maxFields  = 16

	maxRetryAfter = 24 * 60 * 60 // seconds
)

// A reader reads the guest's memory. Every api.Memory is one.
type reader interface {
	Read(offset, length uint32) ([]byte, bool)
}

// readRecord makes the record at an address the decision of the call.
func (c *call) readRecord(mem reader, at uint32) error {
	head, ok := mem.Read(at, recordLen)
	if !ok {
		return breach("handle_request returned %d, and the %d bytes of a record there are not in its memory", at, recordLen)
	}
	word := func(offset int) uint32 { return load32(head, offset) }
	count := word(32)
	if count > maxEntries {
		return breach("its record has %d entries; the limit is %d", count, maxEntries)
	}
	entries, ok := mem.Read(at+recordLen, count*entryLen)
	if !ok || at > at+recordLen {
		return breach("the %d entries of its record are not in its memory", count)
	}
	switch action := word(0); action {
	case actionLock:
		if err := c.readWay(head); err != nil {
			return err
		}
		return c.readKeys(mem, entries)
	case actionSkip:
		c.policy.Skip = true
		return c.readFields(mem, entries)
	case actionDeny:
		return c.readRefusal(mem, word(24), word(28), entries)
	case actionNeedsBody:
		return c.missingBody()
	default:
		return breach("the action of its record is %d; use a number from 0 to %d", action, actionNeedsBody)
	}
}

// readWay reads mode and times of a lock.
func (c *call) readWay(head []byte) error {
	if mode := int32(load32(head, 4)); mode != -1 {
		if mode < 0 || int(mode) >= len(modes) {
			return breach("the mode of its record is %d; use -1, or a number from 0 to %d", mode, len(modes)-1)
		}
		c.policy.Mode = modes[mode]
	}
	if err := readTime(head[8:], "wait_ms", "MaxWait", c.cfg.MaxWait, &c.policy.WaitTime); err != nil {
		return err
	}
	return readTime(head[16:], "lease_ms", "MaxLease", c.cfg.MaxLease, &c.policy.LeaseTime)
}

func readTime(raw []byte, name, bound string, longest time.Duration, d *time.Duration) error {
	switch ms := int64(load64(raw, 0)); {
	case ms == -1:
	case ms < 0 || ms > longest.Milliseconds():
		return breach("%s of its record is %d; use -1, or a number from 0 to %d, which is Config.%s", name, ms, longest.Milliseconds(), bound)
	default:
		*d = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// readKeys reads the keys of a lock, which share one string.
func (c *call) readKeys(mem reader, entries []byte) error {
	var texts [maxKeys][]byte
	n, length := 0, 0
	for e := entries; len(e) > 0; e = e[entryLen:] {
		kind, text, err := c.readEntry(mem, e)
		switch {
		case err != nil:
			return err
		case kind == entryField:
			continue
		case kind == entryToken && len(text) > 0:
			return breach("the entry of kind %d in its record has a text; leave it empty", kind)
		case kind == entryToken:
			c.policy.Fenced = true
			continue
		case kind == entryLimit && len(text) != 4:
			return breach("the entry of kind %d in its record has %d bytes; want an i32", kind, len(text))
		case kind == entryLimit:
			c.policy.Limit = int(int32(load32(text, 0)))
			continue
		case kind != entryKey:
			return breach("its record is wrong: it locks, and has an entry of kind %d", kind)
		case n == maxKeys:
			return errTooManyKeys()
		}
		texts[n] = text[:min(len(text), maxKeyLen+1)] // enough to detect a key that is too long
		length += len(texts[n])
		n++
	}
	return c.addKeys(texts[:n], length)
}

// addKeys adds keys with one allocation for all of them, and one for their list.
func (c *call) addKeys(texts [][]byte, length int) error {
	var all strings.Builder
	all.Grow(length)
	for _, text := range texts {
		all.Write(text)
	}
	rest := all.String()
	c.policy.Keys = make([]string, 0, len(texts))
	for _, text := range texts {
		if err := c.addKey(rest[:len(text)]); err != nil {
			return err
		}
		rest = rest[len(text):]
	}
	return c.checkKeys()
}

func (c *call) readFields(mem reader, entries []byte) error {
	for e := entries; len(e) > 0; e = e[entryLen:] {
		kind, _, err := c.readEntry(mem, e)
		switch {
		case err != nil:
			return err
		case kind != entryField:
			return breach("its record is wrong: it skips the lock, and has an entry of kind %d", kind)
		}
	}
	return nil
}

// readRefusal reads the answer of a guest that refuses the request. retry is in seconds.
func (c *call) readRefusal(mem reader, status, retry uint32, entries []byte) error {
	switch {
	case !refuses(status):
		return breach("the status of its record is %d; use one from 400 to 599", status)
	case retry > maxRetryAfter:
		return breach("retry_after of its record is %d; the limit is %d seconds", retry, maxRetryAfter)
	}
	c.denial = denied(int(status), "")
	c.denial.RetryAfter = time.Duration(retry) * time.Second
	for e := entries; len(e) > 0; e = e[entryLen:] {
		kind, text, err := c.readEntry(mem, e)
		if err == nil {
			err = answer(c.denial, kind, text)
		}
		if err != nil {
			c.denial = nil
			return err
		}
	}
	return c.denial
}

// answer sets one part of a refusal.
func answer(e *guard.Error, kind uint32, text []byte) error {
	switch kind {
	case entryField:
	case entryDetail:
		e.Detail = printable(string(text[:min(len(text), maxText)]), maxDetail)
	case entryTitle:
		e.Title = printable(string(text[:min(len(text), maxText)]), maxTitle)
	case entryProblem:
		if !isProblem(text) {
			return breach("the problem of its record is not 1 to %d of a-z, 0-9 and -", maxProblem)
		}
		e.Type = guard.ProblemPluginDenied + ":" + string(text)
	case entryReason:
		if !isReason(text) {
			return breach("the reason of its record is not 1 to %d characters of printable ASCII", maxReason)
		}
		e.Reason = string(text)
	default:
		return breach("its record is wrong: it refuses, and has an entry of kind %d", kind)
	}
	return nil
}

func isProblem(text []byte) bool {
	for _, b := range text {
		if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' {
			return false
		}
	}
	return len(text) > 0 && len(text) <= maxProblem
}

// isReason reports whether text can be the value of a header.
func isReason(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return len(text) > 0 && len(text) <= maxReason && text[0] != ' ' && text[len(text)-1] != ' '
}

// missingBody answers a request whose body the guest needs and did not get.
func (c *call) missingBody() error {
	if b := c.scratch.bodies[kindRequest]; b != nil && b.err != nil {
		return bodyError(b.err)
	}
	return breach("its record needs the body, which it did not want, or has got")
}

// readEntry reads an entry. It keeps a field for logs. The text is valid until the guest runs
// again.
func (c *call) readEntry(mem reader, entry []byte) (kind uint32, text []byte, err error) {
	kind = load32(entry, 0)
	at, length := load32(entry, 4), load32(entry, 8)
	if length > 0 { // a guest may pass any address with an empty text
		var ok bool
		if text, ok = mem.Read(at, length); !ok {
			return kind, nil, trapped("%d bytes at %d in an entry of its record are outside the guest's memory", length, at)
		}
	}
	if kind == entryField {
		err = c.addField(text)
	}
	return kind, text, err
}

func (c *call) addField(text []byte) error {
	name, value, ok := strings.Cut(printable(string(text[:min(len(text), maxText)]), maxField), "=")
	if !ok || name == "" || len(c.fields) == maxFields {
		return breach("a field of its record is not name=value, or it has more than %d", maxFields)
	}
	c.fields = append(c.fields, slog.String(name, value))
	return nil
}
