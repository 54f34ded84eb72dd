package idempotency

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"slices"

	"github.com/reqlock/reqlock/internal/jsontext"
)

// digestJSON returns the digest of the value at each pointer of the tree; nil: there is no value. Values
// that differ only in white space, in the order of members and in the spelling of strings have equal
// digests. ok is false for a document that is not JSON, is nested deeper than encoding/json allows, or is
// ambiguous: an object has a name twice, in any case, or a string has a lone surrogate.
//
// digestJSON reads the document once. It reduces a member to a short digest when the member ends, and
// sorts only these digests when the object ends. It keeps 24 bytes for each member of the open objects,
// at most maxTokens bytes and a string for each open value, and nothing of the values that have ended.
func digestJSON(document []byte, tree *pointerTree) (digests [][]byte, ok bool) {
	if !jsontext.Valid(document) {
		return nil, false
	}
	d := &digester{document: document, next: tree, digests: make([][]byte, tree.pointers())}
	defer d.leaveCrowd()
	if !d.read() {
		return nil, false
	}
	return d.digests, true
}

// A digester reads a valid document and writes tokens. The tokens of a value depend only on the value
// and the tree, and never are a prefix of another value's.
type digester struct {
	document []byte
	digests  [][]byte // by pointer

	containers []container
	tokens     []byte   // of all open values, the innermost last
	members    []member // of all open objects, the innermost last
	text       []byte   // of the last string with escapes, decoded

	named   bool         // the next value belongs to the name before it
	next    *pointerTree // at the next value, unless that is an element of an array; nil: no pointer leads there
	inCrowd bool
}

// A container is an open object or array.
type container struct {
	tree   *pointerTree
	from   int // where the tokens begin that shorten may replace: its own, or those of the value around it
	member int // of an object: where the tokens of the open member begin
	n      int // of an object: its first member in digester.members; of an array: the index of the next element
	object bool
}

// A member is an ended member of an open object.
type member struct {
	name uint64 // a hash of the name, equal in all cases; members are sorted by it
	sum  [16]byte
}

const (
	numberToken = 'd' // its length and its text follow
	stringToken = 's' // its length and its text follow
	memberToken = 'm' // member.sum follows
	digestToken = 'h' // the SHA-256 of all tokens of the value up to here follows
	wantedToken = 'w' // the SHA-256 of a value that a pointer leads to follows
)

// maxTokens is how many bytes of tokens an open value may have before a digest replaces them.
const maxTokens = 4096

func (d *digester) read() (ok bool) {
	for i := 0; i < len(d.document); {
		switch c := d.document[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '{', '[':
			d.open(c)
			i++
		case '}', ']':
			if !d.close(c) {
				return false
			}
			i++
		case '"':
			end := jsontext.EndOfString(d.document, i)
			text := d.decode(d.document[i+1 : end-1])
			if !d.expectsName() {
				d.scalar(stringToken, text)
			} else if !d.name(text) {
				return false
			}
			i = end
		default:
			end := jsontext.EndOfLiteral(d.document, i)
			d.scalar(numberToken, d.document[i:end]) // no number is spelled true, false or null
			i = end
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

func (d *digester) expectsName() bool {
	top := d.top()
	return top != nil && top.object && !d.named
}

func (d *digester) name(name []byte) (ok bool) {
	top := d.top()
	if d.next, ok = top.tree.member(name); !ok {
		return false
	}
	d.named = true
	d.add(member{name: jsontext.HashName(name)})
	top.member = len(d.tokens)
	d.write(top.member, stringToken, name)
	return true
}

// begin is called before each value. It returns the tree at the value, and where the tokens begin that
// shorten may replace.
func (d *digester) begin() (tree *pointerTree, from int) {
	tree = d.next
	d.next, d.named = nil, false
	if top := d.top(); top != nil {
		from = top.from
		if top.object {
			from = top.member
		} else {
			tree = top.tree.element(top.n)
		}
	}
	if tree.wanted() {
		from = len(d.tokens)
	}
	return tree, from
}

// ended is called after each value.
func (d *digester) ended(tree *pointerTree, from int) {
	if tree.wanted() {
		sum := sha256.Sum256(d.tokens[from:])
		for _, pointer := range tree.ends {
			d.digests[pointer] = sum[:]
		}
		d.tokens = append(append(d.tokens[:from], wantedToken), sum[:]...)
	}
	top := d.top()
	switch {
	case top == nil:
	case top.object:
		sum := sha256.Sum256(d.tokens[top.member:])
		copy(d.members[len(d.members)-1].sum[:], sum[:])
		d.tokens = d.tokens[:top.member]
	default:
		top.n++
	}
}

func (d *digester) scalar(kind byte, text []byte) {
	tree, from := d.begin()
	d.write(from, kind, text)
	d.ended(tree, from)
}

func (d *digester) open(bracket byte) {
	c := container{object: bracket == '{'}
	c.tree, c.from = d.begin()
	if c.object {
		c.n = len(d.members)
	}
	d.tokens = append(d.tokens, bracket)
	d.containers = append(d.containers, c)
}

func (d *digester) close(bracket byte) (ok bool) {
	c := *d.top()
	d.containers = d.containers[:len(d.containers)-1]
	if c.object {
		members := d.members[c.n:]
		slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
		for i, m := range members {
			if i > 0 && m.name == members[i-1].name {
				return false
			}
			d.tokens = append(append(d.tokens, memberToken), m.sum[:]...)
			d.shorten(c.from)
		}
		d.members = d.members[:c.n]
	}
	d.tokens = append(d.tokens, bracket)
	d.shorten(c.from)
	d.ended(c.tree, c.from)
	return true
}

// write writes a token with a text. The tokens of its value begin at from.
func (d *digester) write(from int, kind byte, text []byte) {
	d.tokens = append(d.tokens, kind)
	d.tokens = binary.AppendUvarint(d.tokens, uint64(len(text)))
	d.tokens = append(d.tokens, text...)
	d.shorten(from)
}

func (d *digester) shorten(from int) {
	if len(d.tokens)-from > maxTokens {
		sum := sha256.Sum256(d.tokens[from:])
		d.tokens = append(append(d.tokens[:from], digestToken), sum[:]...)
	}
}

// add adds a member. Capacity doubles while the members are small beside the document. Then it grows at
// once to as many members as the document can have, because doubling could take twice that.
func (d *digester) add(m member) {
	if n := len(d.members); n == cap(d.members) {
		more := max(n, 16)
		if n > 1024 && (n+more)*memberSize > len(d.document)/4 {
			d.enterCrowd()
			most := min(bytes.Count(d.document, []byte{':'}), len(d.document)/5) // no member is shorter than {"":}
			more = most - n
		}
		d.members = append(make([]member, 0, n+more), d.members...)
	}
	d.members = append(d.members, m)
}

const memberSize = 24 // bytes

// crowd limits the digesters with many members to the number of processors: more at a time would be no
// faster, and each takes up to four times the memory of its document.
var crowd = make(chan struct{}, runtime.GOMAXPROCS(0))

func (d *digester) enterCrowd() {
	if !d.inCrowd {
		crowd <- struct{}{}
		d.inCrowd = true
	}
}

func (d *digester) leaveCrowd() {
	if d.inCrowd {
		<-crowd
	}
}

// decode decodes what stands between the quotes of a string. The result is valid until the next call.
func (d *digester) decode(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted
	}
	d.text = jsontext.AppendUnquoted(d.text[:0], quoted)
	return d.text
}
