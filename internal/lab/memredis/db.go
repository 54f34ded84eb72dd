package memredis

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"strconv"
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

	keys []key // sorted by name
}

type key struct {
	name string
	kind kind
	// ttl is in ms, or NoTTL.
	ttl int64
	str string
	// pairs belong to a hash or a sorted set, by name.
	pairs []pair
	// list is the value of a list.
	list []string
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
)

// find returns the index of a key, and whether the key exists.
func (d *DB) find(name string) (int, bool) {
	for i := range d.keys {
		if d.keys[i].name >= name {
			return i, d.keys[i].name == name
		}
	}
	return len(d.keys), false
}

// get returns a key of a kind, or nil.
func (d *DB) get(name string, k kind) (*key, error) {
	i, ok := d.find(name)
	if !ok {
		return nil, nil
	}
	if d.keys[i].kind != k {
		return nil, errWrongType
	}
	return &d.keys[i], nil
}

// create is like get, but creates a missing key.
func (d *DB) create(name string, k kind) (*key, error) {
	got, err := d.get(name, k)
	if got != nil || err != nil {
		return got, err
	}
	i, _ := d.find(name)
	d.keys = slices.Insert(d.keys, i, key{name: name, kind: k, ttl: NoTTL})
	return &d.keys[i], nil
}

// Delete removes a key, and reports whether it existed.
func (d *DB) Delete(name string) bool {
	i, ok := d.find(name)
	if ok {
		d.keys = slices.Delete(d.keys, i, i+1)
	}
	return ok
}

// drop removes a key that is empty now.
func (d *DB) drop(k *key) {
	if len(k.pairs) == 0 && len(k.list) == 0 {
		d.Delete(k.name)
	}
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

// Advance moves the clock and removes the keys that expire.
func (d *DB) Advance(ms int64) {
	d.Now += ms
	d.keys = slices.DeleteFunc(d.keys, func(k key) bool { return k.ttl != NoTTL && k.ttl <= ms })
	for i := range d.keys {
		if d.keys[i].ttl != NoTTL {
			d.keys[i].ttl -= ms
		}
	}
}

// Keys returns the names of all keys.
func (d *DB) Keys() []string {
	names := make([]string, len(d.keys))
	for i := range d.keys {
		names[i] = d.keys[i].name
	}
	return names
}

// TTL is PTTL.
func (d *DB) TTL(name string) int64 {
	i, ok := d.find(name)
	if !ok {
		return -2
	}
	return d.keys[i].ttl
}

// Field returns a field of a hash.
func (d *DB) Field(name, field string) (string, bool) {
	if k, _ := d.get(name, hashKind); k != nil {
		if i, ok := k.pair(field); ok {
			return k.pairs[i].value, true
		}
	}
	return "", false
}

// Fields returns the names of the fields of a hash.
func (d *DB) Fields(name string) []string {
	k, _ := d.get(name, hashKind)
	if k == nil {
		return nil
	}
	fields := make([]string, len(k.pairs))
	for i := range k.pairs {
		fields[i] = k.pairs[i].name
	}
	return fields
}

// List returns the items of a list.
func (d *DB) List(name string) []string {
	if k, _ := d.get(name, listKind); k != nil {
		return k.list
	}
	return nil
}

// Score returns the score of a member of a sorted set.
func (d *DB) Score(name, member string) (float64, bool) {
	if k, _ := d.get(name, zsetKind); k != nil {
		if i, ok := k.pair(member); ok {
			return k.pairs[i].score, true
		}
	}
	return 0, false
}

// Value returns a string value.
func (d *DB) Value(name string) string {
	if k, _ := d.get(name, stringKind); k != nil {
		return k.str
	}
	return ""
}

// ShiftScores adds a number to all scores of a sorted set. No score falls below least.
func (d *DB) ShiftScores(name string, by, least float64) {
	if k, _ := d.get(name, zsetKind); k != nil {
		for i := range k.pairs {
			k.pairs[i].score = max(k.pairs[i].score+by, least)
		}
	}
}

// Rename replaces names everywhere: in keys, fields, members, items and hash values.
func (d *DB) Rename(names *strings.Replacer) {
	for i := range d.keys {
		k := &d.keys[i]
		k.name = names.Replace(k.name)
		for j := range k.pairs {
			k.pairs[j].name = names.Replace(k.pairs[j].name)
			k.pairs[j].value = names.Replace(k.pairs[j].value)
		}
		sort.Slice(k.pairs, func(a, b int) bool { return k.pairs[a].name < k.pairs[b].name })
		for j := range k.list {
			k.list[j] = names.Replace(k.list[j])
		}
	}
	sort.Slice(d.keys, func(a, b int) bool { return d.keys[a].name < d.keys[b].name })
}

// Commands returns commands that give an empty server the same content.
func (d *DB) Commands() (commands [][]string) {
	add := func(args ...string) { commands = append(commands, args) }
	for i := range d.keys {
		k := &d.keys[i]
		switch k.kind {
		case stringKind:
			add("SET", k.name, k.str)
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
		if k.ttl != NoTTL {
			add("PEXPIRE", k.name, strconv.FormatInt(k.ttl, 10))
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
	for i := range d.keys {
		k := &d.keys[i]
		text(k.name)
		b = append(b, byte(k.kind))
		b = binary.AppendVarint(b, k.ttl)
		switch k.kind {
		case stringKind:
			text(k.str)
		case listKind:
			b = binary.AppendUvarint(b, uint64(len(k.list)))
			for _, item := range k.list {
				text(item)
			}
		case hashKind, zsetKind:
			b = binary.AppendUvarint(b, uint64(len(k.pairs)))
			for _, p := range k.pairs {
				text(p.name)
				if k.kind == hashKind {
					text(p.value)
				} else {
					text(formatFloat(p.score))
				}
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
		k.ttl = r.int()
		switch k.kind {
		case stringKind:
			k.str = r.text()
		case listKind:
			k.list = make([]string, r.len())
			for i := range k.list {
				k.list[i] = r.text()
			}
		case hashKind, zsetKind:
			k.pairs = make([]pair, r.len())
			for i := range k.pairs {
				k.pairs[i].name = r.text()
				if k.kind == hashKind {
					k.pairs[i].value = r.text()
				} else {
					k.pairs[i].score, _ = parseFloat(r.text())
				}
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
	for i := range d.keys {
		k := &d.keys[i]
		fmt.Fprintf(&b, "%s =", k.name)
		switch k.kind {
		case stringKind:
			fmt.Fprintf(&b, " %q", k.str)
		case listKind:
			fmt.Fprintf(&b, " %v", k.list)
		case hashKind:
			for _, p := range k.pairs {
				fmt.Fprintf(&b, " %s:%s", p.name, p.value)
			}
		case zsetKind:
			for _, p := range k.pairs {
				fmt.Fprintf(&b, " %s:%+g", p.name, p.score-float64(d.Now))
			}
		}
		if k.ttl != NoTTL {
			fmt.Fprintf(&b, " (TTL %d ms)", k.ttl)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
