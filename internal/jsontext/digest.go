package jsontext

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
)

// A Digest is the SHA-256 of a JSON value. Values that differ only in white space, in the order of
// members and in the spelling of strings have equal digests.
type Digest = [sha256.Size]byte

// Digests returns the digest of the value at each pointer; nil: there is none. ok is false for a
// document that is not Valid, or that decoders may read in different ways: an object has a name
// twice, in any case, or has a name of a pointer in another case.
func Digests(document []byte, pointers ...[]Token) (digests []*Digest, ok bool) {
	if !Valid(document) {
		return nil, false
	}
	root := Text(document).Trim()
	whole, ok := root.digest()
	if !ok {
		return nil, false
	}
	digests = make([]*Digest, len(pointers))
	for i, pointer := range pointers {
		value, err := root.Find(pointer)
		switch {
		case errors.Is(err, ErrAmbiguous):
			return nil, false
		case err != nil:
		case len(pointer) == 0:
			digests[i] = &whole
		default:
			digest, _ := value.digest() // as unambiguous as the document
			digests[i] = &digest
		}
	}
	return digests, true
}

// digest returns the digest of the value. ok is false if an object in it has a name twice, in any
// case.
//
// It reads the value once. It reduces a member to a short digest when the member ends, and sorts
// only these digests when the object ends. It keeps 24 bytes for each member of the open objects,
// at most maxTokens bytes and a string for each open value, and nothing of the values that have
// ended.
func (t Text) digest() (digest Digest, ok bool) {
	d := &digester{document: t}
	defer d.releaseSlot()
	if !d.read() {
		return Digest{}, false
	}
	return sha256.Sum256(d.tokens), true
}

// A digester reads a value and writes tokens. The tokens of a value depend only on the value, and
// never are a prefix of another value's.
type digester struct {
	document   Text
	containers []container
	// tokens belong to all open values, the innermost last.
	tokens []byte
	// members belong to all open objects, the innermost last.
	members []member
	// text is the last string with escapes, decoded.
	text    []byte
	hasSlot bool
}

// A container is an open object or array.
type container struct {
	object bool
	// Where the tokens begin that shorten may replace: its own, or those of the value around it.
	from int
	// first is the first member of an object in digester.members.
	first int
	// member is where the tokens of the open member of an object begin. noMember: a name follows.
	member int
}

const noMember = -1

// A member is an ended member of an open object.
type member struct {
	name uint64 // a hash of the name, equal in all cases; members are sorted by it
	sum  [16]byte
}

const (
	literalToken = 'd' // The length and the text of the literal follow. No number is spelled true, false or null.
	stringToken  = 's' // The length and the text of the string follow.
	memberToken  = 'm' // The sum of the member follows.
	digestToken  = 'h' // The SHA-256 of all tokens of the value up to here follows.
)

// maxTokens is how many bytes of tokens an open value may have before a digest replaces them.
const maxTokens = 4096

func (d *digester) read() (ok bool) {
	t := d.document
	for start, end := t.nextToken(0); start < len(t); start, end = t.nextToken(end) {
		switch c := t[start]; c {
		case '{', '[':
			d.open(c)
			continue
		case '}', ']':
			if !d.close(c) {
				return false
			}
		case '"':
			text := d.decode(t[start+1 : end-1])
			if d.expectsName() {
				d.name(text)
				continue
			}
			d.write(stringToken, text)
		default:
			d.write(literalToken, t[start:end])
		}
		d.endValue()
		if len(d.containers) == 0 {
			break
		}
	}
	return true
}

// top returns the innermost container; nil: there is none.
func (d *digester) top() *container {
	if len(d.containers) == 0 {
		return nil
	}
	return &d.containers[len(d.containers)-1]
}

// from returns where the tokens of the open value begin.
func (d *digester) from() int {
	top := d.top()
	switch {
	case top == nil:
		return 0
	case top.object:
		return top.member
	}
	return top.from
}

func (d *digester) expectsName() bool {
	top := d.top()
	return top != nil && top.object && top.member == noMember
}

func (d *digester) name(name []byte) {
	d.addMember(member{name: hashName(name)})
	d.top().member = len(d.tokens)
	d.write(stringToken, name)
}

// endValue ends the member that the value belongs to, if any.
func (d *digester) endValue() {
	top := d.top()
	if top == nil || !top.object {
		return
	}
	sum := sha256.Sum256(d.tokens[top.member:])
	copy(d.members[len(d.members)-1].sum[:], sum[:])
	d.tokens = d.tokens[:top.member]
	top.member = noMember
}

func (d *digester) open(bracket byte) {
	c := container{object: bracket == '{', from: d.from(), first: len(d.members), member: noMember}
	d.tokens = append(d.tokens, bracket)
	d.containers = append(d.containers, c)
}

func (d *digester) close(bracket byte) (ok bool) {
	c := *d.top()
	d.containers = d.containers[:len(d.containers)-1]
	if c.object {
		members := d.members[c.first:]
		slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
		for i, m := range members {
			if i > 0 && m.name == members[i-1].name {
				return false
			}
			d.tokens = append(append(d.tokens, memberToken), m.sum[:]...)
			d.shorten(c.from)
		}
		d.members = d.members[:c.first]
	}
	d.tokens = append(d.tokens, bracket)
	d.shorten(c.from)
	return true
}

// write writes a token with a text.
func (d *digester) write(kind byte, text []byte) {
	d.tokens = append(d.tokens, kind)
	d.tokens = binary.AppendUvarint(d.tokens, uint64(len(text)))
	d.tokens = append(d.tokens, text...)
	d.shorten(d.from())
}

// shorten replaces the tokens from there by a digest if they are too long.
func (d *digester) shorten(from int) {
	if len(d.tokens)-from > maxTokens {
		sum := sha256.Sum256(d.tokens[from:])
		d.tokens = append(append(d.tokens[:from], digestToken), sum[:]...)
	}
}

// addMember adds a member. Capacity doubles while the members are small beside the document. Then
// it grows at once to as many members as the document can have, because doubling could take twice
// that.
func (d *digester) addMember(m member) {
	if n := len(d.members); n == cap(d.members) {
		more := max(n, 16)
		if size := len(d.document); n > 1024 && (n+more)*memberSize > size/4 {
			d.acquireSlot()
			// No member is shorter than {"":}.
			most := min(bytes.Count(d.document, []byte{':'}), size/5)
			more = most - n
		}
		d.members = append(make([]member, 0, n+more), d.members...)
	}
	d.members = append(d.members, m)
}

const memberSize = 24 // bytes

// slots limits the digesters with many members to the number of processors: more at a time would be
// no faster, and each takes up to four times the memory of its document.
var slots = make(chan struct{}, runtime.GOMAXPROCS(0))

func (d *digester) acquireSlot() {
	if !d.hasSlot {
		slots <- struct{}{}
		d.hasSlot = true
	}
}

func (d *digester) releaseSlot() {
	if d.hasSlot {
		<-slots
	}
}

// decode decodes the text between the quotes of a string. The result is valid until the next call.
func (d *digester) decode(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted
	}
	d.text = appendUnquoted(d.text[:0], quoted)
	return d.text
}
