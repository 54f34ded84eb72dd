package guest

import (
	"strings"
	"time"
	"unsafe"
)

// The fields of a request, in the order of the ABI.
const (
	fieldMethod = iota
	fieldURI
	fieldSource
	fieldProtocol
	fieldHost
	fieldBody
	fields
)

// missing is the length of a body that the host cannot give.
const missing = 1<<32 - 1

// The declaration, as the host reads it.
var declaration struct{ wants, names, namesLen, buffer, bufferLen uint32 }

var (
	// The host hands over headers. names has the same, each with a NUL.
	headers []string
	names   string
	// request is the buffer for requests: six fields and the headers, then the texts.
	request []uint32
)

var fieldOf = map[Part]int{
	PartMethod:     fieldMethod,
	PartURI:        fieldURI,
	PartSourceAddr: fieldSource,
	PartProtocol:   fieldProtocol,
	PartHost:       fieldHost,
	PartBody:       fieldBody,
}

// declare prepares what the host asks for at start.
func declare(parts []Part) {
	size := 8 << 10
	for _, p := range parts {
		field, ok := fieldOf[p]
		switch {
		case !ok && (p == "" || p[0] == ':'):
			panic("reqlock: guest: unknown part " + string(p) + "; use a header's name or one of the constants")
		case !ok:
			headers = append(headers, string(p))
			names += string(p) + "\x00"
			continue
		case field == fieldBody:
			size += 64 << 10 // the host's default for MaxBody
		}
		declaration.wants |= 1 << field
	}
	request = make([]uint32, size/4)
	declaration.names, declaration.namesLen = address(unsafe.Pointer(unsafe.StringData(names))), uint32(len(names))
	declaration.buffer, declaration.bufferLen = address(unsafe.Pointer(unsafe.SliceData(request))), uint32(size)
}

func address(p unsafe.Pointer) uint32 { return uint32(uintptr(p)) }

// text returns a copy of a text in the buffer. ok is false if the host did not write it.
func text(at, length uint32) (text string, ok bool) {
	if at == 0 {
		return "", false
	}
	begin := at - declaration.buffer
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(request))), len(request)*4)
	switch view := bytes[begin : begin+length]; string(view) {
	case "GET":
		return "GET", true // without a copy
	case "POST":
		return "POST", true
	default:
		return string(view), true
	}
}

func field(i int) (string, bool) {
	if len(request) == 0 {
		return "", false
	}
	return text(request[2*i], request[2*i+1])
}

// part returns a field, or asks the host for it.
func part(i int, get func(buf []byte) uint32) string {
	if text, ok := field(i); ok {
		return text
	}
	return fetch(get)
}

func bodyMissing() bool { return len(request) > 0 && request[2*fieldBody+1] == missing }

// header returns the values of a header that was declared, with NUL between them.
func header(name string) (all string, count uint32, ok bool) {
	for i, h := range headers {
		if h != name && !strings.EqualFold(h, name) {
			continue
		}
		entry := request[2*fields+3*i:]
		if entry[2] == 0 {
			return "", 0, true
		}
		all, ok = text(entry[0], entry[1])
		return all, entry[2], ok
	}
	return "", 0, false
}

// handle decides on the request in the buffer, and returns the address of the record.
func handle() uint32 {
	lock.reset()
	run()
	lock.write()
	return address(unsafe.Pointer(&record))
}

// run calls the plugin's function, which a body that cannot be read may end.
func run() {
	defer func() {
		if lock.needsBody {
			_ = recover()
		}
	}()
	decide(Request{}, Lock{})
}

// lock is the decision of the running call.
var lock decision

type decision struct {
	mode            int32
	waitMS, leaseMS int64
	keys, fields    []string
	fenced          bool
	limited         bool
	limit           int32
	skip, needsBody bool
	refusal         *Refusal
}

func (d *decision) reset() {
	*d = decision{mode: -1, waitMS: -1, leaseMS: -1, keys: d.keys[:0], fields: d.fields[:0]}
}

func (d *decision) refuse(r Refusal) { d.refusal = &r }

// The actions and kinds of entries in the ABI.
const (
	actionLock, actionSkip, actionDeny, actionNeedsBody = 0, 1, 2, 3

	entryKey, entryDetail, entryTitle, entryProblem, entryReason, entryField, entryToken, entryLimit = 1, 2, 3, 4, 5, 6, 7, 8
)

// The record, as the host reads it.
var record struct {
	action  uint32
	mode    int32
	waitMS  int64
	leaseMS int64
	status  uint32
	retry   uint32
	count   uint32
	entries [maxEntries][3]uint32
}

const maxEntries = 64

// write fills the record. The texts stay where they are.
func (d *decision) write() {
	record.action, record.count = actionLock, 0
	record.mode, record.waitMS, record.leaseMS = d.mode, d.waitMS, d.leaseMS
	record.status, record.retry = 0, 0
	for _, f := range d.fields {
		add(entryField, f)
	}
	switch {
	case d.needsBody:
		record.action, record.count = actionNeedsBody, 0
	case d.refusal != nil:
		record.action = actionDeny
		record.status, record.retry = uint32(d.refusal.Status), uint32(roundUp(d.refusal.RetryAfter, time.Second))
		add(entryDetail, d.refusal.Detail)
		addIfAny(entryTitle, d.refusal.Title)
		addIfAny(entryProblem, d.refusal.Problem)
		addIfAny(entryReason, d.refusal.Reason)
	case d.skip:
		record.action = actionSkip
	default:
		for _, key := range d.keys {
			add(entryKey, key)
		}
		if d.fenced {
			add(entryToken, "")
		}
		if d.limited {
			addAt(entryLimit, unsafe.Pointer(&d.limit), 4)
		}
	}
}

// add adds an entry. The host refuses a record with more entries than it has room for.
func add(kind uint32, text string) {
	addAt(kind, unsafe.Pointer(unsafe.StringData(text)), len(text))
}

func addAt(kind uint32, at unsafe.Pointer, length int) {
	if record.count < maxEntries {
		record.entries[record.count] = [3]uint32{kind, address(at), uint32(length)}
	}
	record.count++
}

func addIfAny(kind uint32, text string) {
	if text != "" {
		add(kind, text)
	}
}
