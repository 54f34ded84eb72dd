package memredis

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// NoTTL is the TTL of a key that does not expire.
const NoTTL = -1

// A DB is the content of a server. The zero value is empty. It is not safe for concurrent use.
type DB struct {
	// Now is the server's clock in ms. It is not part of Encode.
	Now int64
	// Listeners returns how many clients listen on a channel, for PUBSUB NUMSUB or SHARDNUMSUB; nil:
	// none do.
	Listeners func(command, channel string) int
	// Publish returns how many clients receive a message; nil: none do.
	Publish func(command, channel, message string) int
	// Written is told each key that a command may have changed; nil: nothing is.
	Written func(key string)
	// Rand draws what HRANDFIELD returns of a larger hash. Without it, such a command panics, because
	// a search of all states cannot follow it.
	Rand *rand.Rand

	keys []key // sorted by name; some may have expired
}

type key struct {
	name string
	kind kind
	// expires is what the clock shows then, in ms; 0: the key does not expire.
	expires int64
	// list has the items of a list, or the one value of a string.
	list []string
	// pairs belong to a hash or a sorted set, by name.
	pairs []pair
}

// A pair is a field of a hash, or a member of a sorted set.
type pair struct {
	name string
	// value is used in a hash.
	value string
	// score is used in a sorted set.
	score float64
}

type kind byte

const (
	stringKind kind = iota
	hashKind
	listKind
	zsetKind
	anyKind // what a command takes
)

// search returns the place of a key, and whether there is one, which may have expired.
func (d *DB) search(name string) (int, bool) {
	return slices.BinarySearchFunc(d.keys, name, func(k key, name string) int { return strings.Compare(k.name, name) })
}

// find returns a key, or nil.
func (d *DB) find(name string) *key {
	i, ok := d.search(name)
	if !ok {
		return nil
	}
	k := &d.keys[i]
	if k.expires != 0 && k.expires <= d.Now {
		d.keys = slices.Delete(d.keys, i, i+1)
		return nil
	}
	return k
}

// look returns a key of a kind, or an empty one.
func (d *DB) look(name string, of kind) *key {
	if k := d.find(name); k != nil && k.kind == of {
		return k
	}
	return &key{}
}

// all returns the keys that have not expired, and forgets the others.
func (d *DB) all() []key {
	d.keys = slices.DeleteFunc(d.keys, func(k key) bool { return k.expires != 0 && k.expires <= d.Now })
	return d.keys
}

// insert adds a key that the database does not have.
func (d *DB) insert(k key) {
	i, _ := d.search(k.name)
	d.keys = slices.Insert(d.keys, i, k)
}

// Delete removes a key, and reports whether it existed.
func (d *DB) Delete(name string) bool {
	if d.find(name) == nil {
		return false
	}
	i, _ := d.search(name)
	d.keys = slices.Delete(d.keys, i, i+1)
	return true
}

func (k *key) size() int { return len(k.pairs) + len(k.list) }

func (k *key) ttl(now int64) int64 {
	if k.expires == 0 {
		return NoTTL
	}
	return k.expires - now
}

func (k *key) pair(name string) (int, bool) {
	for i := range k.pairs {
		if k.pairs[i].name >= name {
			return i, k.pairs[i].name == name
		}
	}
	return len(k.pairs), false
}

// put returns the pair of a name, and creates it if necessary.
func (k *key) put(name string) (p *pair, created bool) {
	i, ok := k.pair(name)
	if !ok {
		k.pairs = slices.Insert(k.pairs, i, pair{name: name})
	}
	return &k.pairs[i], !ok
}

func (k *key) remove(name string) bool {
	i, ok := k.pair(name)
	if ok {
		k.pairs = slices.Delete(k.pairs, i, i+1)
	}
	return ok
}

// Clone returns a copy with the same clock and functions.
func (d *DB) Clone() *DB {
	c := *d
	c.keys = slices.Clone(d.all())
	for i := range c.keys {
		k := &c.keys[i]
		k.list, k.pairs = slices.Clone(k.list), slices.Clone(k.pairs)
	}
	return &c
}

// Advance moves the clock.
func (d *DB) Advance(ms int64) { d.Now += ms }

// Keys returns the names of all keys, in order.
func (d *DB) Keys() []string {
	names := make([]string, 0, len(d.keys))
	for _, k := range d.all() {
		names = append(names, k.name)
	}
	return names
}

// TTL is PTTL.
func (d *DB) TTL(name string) int64 {
	k := d.find(name)
	if k == nil {
		return -2
	}
	return k.ttl(d.Now)
}

// Value returns a string value.
func (d *DB) Value(name string) string {
	if k := d.look(name, stringKind); len(k.list) > 0 {
		return k.list[0]
	}
	return ""
}

// List returns the items of a list.
func (d *DB) List(name string) []string { return d.look(name, listKind).list }

// Field returns a field of a hash.
func (d *DB) Field(name, field string) (string, bool) {
	k := d.look(name, hashKind)
	if i, ok := k.pair(field); ok {
		return k.pairs[i].value, true
	}
	return "", false
}

// Fields returns the names of the fields of a hash.
func (d *DB) Fields(name string) []string { return d.look(name, hashKind).names() }

func (k *key) names() []string {
	var names []string
	for i := range k.pairs {
		names = append(names, k.pairs[i].name)
	}
	return names
}

// Elements returns the fields, members or items of a key. A string has one element, which is empty.
func (d *DB) Elements(name string) []string {
	switch k := d.find(name); {
	case k == nil:
		return nil
	case k.kind == stringKind:
		return []string{""}
	default:
		return append(k.names(), k.list...)
	}
}

// Score returns the score of a member of a sorted set.
func (d *DB) Score(name, member string) (float64, bool) {
	k := d.look(name, zsetKind)
	if i, ok := k.pair(member); ok {
		return k.pairs[i].score, true
	}
	return 0, false
}

// ShiftScores adds a number to all scores of a sorted set. No score falls below least.
func (d *DB) ShiftScores(name string, by, least float64) {
	k := d.look(name, zsetKind)
	for i := range k.pairs {
		k.pairs[i].score = max(k.pairs[i].score+by, least)
	}
}

// Rename replaces names everywhere: in keys, fields, members, items and hash values.
func (d *DB) Rename(names *strings.Replacer) {
	for i := range d.all() {
		k := &d.keys[i]
		k.name = names.Replace(k.name)
		for j := range k.pairs {
			k.pairs[j].name = names.Replace(k.pairs[j].name)
			k.pairs[j].value = names.Replace(k.pairs[j].value)
		}
		slices.SortFunc(k.pairs, func(a, b pair) int { return strings.Compare(a.name, b.name) })
		for j := range k.list {
			k.list[j] = names.Replace(k.list[j])
		}
	}
	slices.SortFunc(d.keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
}

// Commands returns commands that give an empty server the same content.
func (d *DB) Commands() (commands [][]string) {
	add := func(args ...string) { commands = append(commands, args) }
	for _, k := range d.all() {
		switch k.kind {
		case stringKind:
			add("SET", k.name, k.list[0])
		case listKind:
			add(append([]string{"RPUSH", k.name}, k.list...)...)
		case hashKind:
			for _, p := range k.pairs {
				add("HSET", k.name, p.name, p.value)
			}
		case zsetKind:
			for _, p := range k.pairs {
				add("ZADD", k.name, formatFloat(p.score), p.name)
			}
		}
		if k.expires != 0 {
			add("PEXPIRE", k.name, itoa(k.ttl(d.Now)))
		}
	}
	return commands
}

// Encode returns the content as a string. Equal databases have equal strings.
func (d *DB) Encode() string {
	b := make([]byte, 0, 128)
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, k := range d.all() {
		text(k.name)
		b = append(b, byte(k.kind))
		b = binary.AppendVarint(b, k.ttl(d.Now))
		b = binary.AppendUvarint(b, uint64(k.size()))
		for _, item := range k.list {
			text(item)
		}
		for _, p := range k.pairs {
			text(p.name)
			if k.kind == hashKind {
				text(p.value)
			} else {
				text(formatFloat(p.score))
			}
		}
	}
	return string(b)
}

// Decode restores the database that Encode was called on, with the clock at now.
func Decode(content string, now int64) *DB {
	d := &DB{Now: now}
	r := reader{content}
	for r.rest != "" {
		k := key{name: r.text(), kind: kind(r.byte())}
		if ttl := r.int(); ttl != NoTTL {
			k.expires = now + ttl
		}
		size := r.len()
		if k.kind == stringKind || k.kind == listKind {
			k.list = make([]string, size)
		} else {
			k.pairs = make([]pair, size)
		}
		for i := range k.list {
			k.list[i] = r.text()
		}
		for i := range k.pairs {
			p := &k.pairs[i]
			if p.name = r.text(); k.kind == hashKind {
				p.value = r.text()
			} else {
				p.score, _ = parseFloat(r.text())
			}
		}
		d.keys = append(d.keys, k)
	}
	return d
}

type reader struct{ rest string }

func (r *reader) byte() byte {
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) len() int {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	r.rest = r.rest[size:]
	return int(n)
}

func (r *reader) int() int64 {
	n, size := binary.Varint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	r.rest = r.rest[size:]
	return n
}

func (r *reader) text() string {
	n := r.len()
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// String prints the content, one key a line.
func (d *DB) String() string {
	var b strings.Builder
	for _, k := range d.all() {
		b.WriteString(k.describe(d.Now) + "\n")
	}
	return b.String()
}

// Describe prints a key; a missing one is empty.
func (d *DB) Describe(name string) string {
	if k := d.find(name); k != nil {
		return k.describe(d.Now)
	}
	return ""
}

func (k *key) describe(now int64) string {
	text := k.name + " ="
	switch k.kind {
	case stringKind:
		text += fmt.Sprintf(" %q", k.list[0])
	case listKind:
		text += fmt.Sprintf(" %v", k.list)
	case hashKind:
		for _, p := range k.pairs {
			text += " " + p.name + ":" + p.value
		}
	case zsetKind:
		for _, p := range k.pairs {
			text += fmt.Sprintf(" %s:%+g", p.name, p.score-float64(now))
		}
	}
	if k.expires != 0 {
		text += fmt.Sprintf(" (TTL %d ms)", k.ttl(now))
	}
	return text
}
