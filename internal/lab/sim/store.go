package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A store is the data of a simulated Redis: the types and commands that the scripts use, with the
// replies of Redis. TestStore_AgreesWithRedis compares it with a real server.
type store struct {
	keys map[string]*value
	// now is the server's clock in ms, and us is the same in µs. It stops during a command.
	now int64
	us  int64
	rng *rand.Rand

	// Hooks of the simulation. They must not change the store.
	publish   func(command, channel, message string) (listeners int)
	listeners func(command, channel string) int
	// written is called for each write.
	written func(key string)
}

type valueKind byte

const (
	stringValue valueKind = iota
	hashValue
	listValue
	zsetValue
)

// A value is small. Its fields and members are in slices, because maps have no order.
type value struct {
	kind    valueKind
	text    string
	fields  []field
	list    []string
	members []member
	// expires is in ms. 0: the value never expires.
	expires int64
}

type field struct{ name, value string }

type member struct {
	name  string
	score float64
}

// Replies. Others are int64, string (bulk), nil and []any.
type (
	status     string
	errorReply string
)

func newStore(rng *rand.Rand) *store {
	return &store{
		keys:      make(map[string]*value),
		rng:       rng,
		publish:   func(string, string, string) int { return 0 },
		listeners: func(string, string) int { return 0 },
		written:   func(string) {},
	}
}

// clone returns a snapshot of the data.
func (s *store) clone() map[string]*value {
	copied := make(map[string]*value, len(s.keys))
	for key, v := range s.keys {
		c := *v
		c.fields, c.list, c.members = slices.Clone(v.fields), slices.Clone(v.list), slices.Clone(v.members)
		copied[key] = &c
	}
	return copied
}

// sorted returns the keys that have not expired, in order.
func (s *store) sorted() []string {
	var names []string
	for key := range s.keys {
		if s.get(key) != nil {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	return names
}

// get returns the value of a key; nil: it does not exist.
func (s *store) get(key string) *value {
	v := s.keys[key]
	if v == nil {
		return nil
	}
	if v.expires != 0 && v.expires <= s.now {
		delete(s.keys, key)
		return nil
	}
	return v
}

func (v *value) field(name string) (string, bool) {
	if v != nil {
		for i := range v.fields {
			if v.fields[i].name == name {
				return v.fields[i].value, true
			}
		}
	}
	return "", false
}

// elements returns the fields or members of a value. A string has one element, which is empty.
func (v *value) elements() []string {
	var names []string
	switch {
	case v == nil:
	case v.kind == stringValue:
		names = append(names, "")
	default:
		names = append(names, v.list...)
		for _, f := range v.fields {
			names = append(names, f.name)
		}
		for _, m := range v.members {
			names = append(names, m.name)
		}
	}
	return names
}

func (v *value) size() int {
	switch v.kind {
	case hashValue:
		return len(v.fields)
	case listValue:
		return len(v.list)
	case zsetValue:
		return len(v.members)
	}
	return 1
}

const wrongType = errorReply("WRONGTYPE Operation against a key holding the wrong kind of value")

// A command describes how the store executes a command.
type command struct {
	kind   valueKind
	any    bool // accepts all types
	key    bool // the first argument is a key
	write  bool
	grows  bool // refused when the memory is full
	least  int  // number of arguments
	effect func(s *store, v *value, args []string) any
}

var commands map[string]command

func init() {
	read := func(kind valueKind, least int, f func(*store, *value, []string) any) command {
		return command{kind: kind, key: true, least: least, effect: f}
	}
	write := func(kind valueKind, least int, f func(*store, *value, []string) any) command {
		return command{kind: kind, key: true, write: true, least: least, effect: f}
	}
	grow := func(kind valueKind, least int, f func(*store, *value, []string) any) command {
		return command{kind: kind, key: true, write: true, grows: true, least: least, effect: f}
	}
	commands = map[string]command{
		"DEL":        {any: true, key: true, write: true, least: 1, effect: (*store).del},
		"EXISTS":     {any: true, key: true, least: 1, effect: (*store).exists},
		"PTTL":       {any: true, key: true, least: 1, effect: (*store).pttl},
		"PEXPIRE":    {any: true, key: true, write: true, least: 2, effect: (*store).pexpire},
		"SET":        {any: true, key: true, write: true, grows: true, least: 2, effect: (*store).set},
		"GET":        read(stringValue, 1, (*store).getString),
		"INCR":       grow(stringValue, 1, (*store).incr),
		"HSET":       grow(hashValue, 3, (*store).hset),
		"HSETNX":     grow(hashValue, 3, (*store).hsetnx),
		"HGET":       read(hashValue, 2, (*store).hget),
		"HMGET":      read(hashValue, 2, (*store).hmget),
		"HDEL":       write(hashValue, 2, (*store).hdel),
		"HEXISTS":    read(hashValue, 2, (*store).hexists),
		"HLEN":       read(hashValue, 1, (*store).hlen),
		"HKEYS":      read(hashValue, 1, (*store).hkeys),
		"HRANDFIELD": read(hashValue, 3, (*store).hrandfield),
		"RPUSH":      grow(listValue, 2, (*store).rpush),
		"LINDEX":     read(listValue, 2, (*store).lindex),
		"LLEN":       read(listValue, 1, (*store).llen),
		"LPOS":       read(listValue, 2, (*store).lpos),
		"LRANGE":     read(listValue, 3, (*store).lrange),
		"LREM":       write(listValue, 3, (*store).lrem),
		"LSET":       grow(listValue, 3, (*store).lset),
		"ZADD":       grow(zsetValue, 3, (*store).zadd),
		"ZCARD":      read(zsetValue, 1, (*store).zcard),
		"ZINCRBY":    grow(zsetValue, 3, (*store).zincrby),
		"ZRANK":      read(zsetValue, 2, (*store).zrank),
		"ZREM":       write(zsetValue, 2, (*store).zrem),
		"ZSCORE":     read(zsetValue, 2, (*store).zscore),
		"TIME":       {effect: (*store).time},
		"PUBSUB": {least: 2, effect: func(s *store, _ *value, args []string) any {
			var counts []any
			for _, channel := range args[1:] {
				counts = append(counts, channel, int64(s.listeners(args[0], channel)))
			}
			return counts
		}},
		"PUBLISH": {least: 2, effect: func(s *store, _ *value, args []string) any {
			return int64(s.publish("PUBLISH", args[0], args[1]))
		}},
		"SPUBLISH": {least: 2, effect: func(s *store, _ *value, args []string) any {
			return int64(s.publish("SPUBLISH", args[0], args[1]))
		}},
	}
}

// do executes a command.
func (s *store) do(name string, args []string) any {
	c, known := commands[name]
	if !known {
		return errorReply("ERR unknown command '" + name + "'")
	}
	if len(args) < c.least {
		return errorReply("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	}
	if !c.key {
		return c.effect(s, nil, args)
	}
	v := s.get(args[0])
	if v != nil && !c.any && v.kind != c.kind {
		return wrongType
	}
	reply := c.effect(s, v, args)
	if c.write {
		if v := s.keys[args[0]]; v != nil && v.size() == 0 {
			delete(s.keys, args[0])
		}
		s.written(args[0])
	}
	return reply
}

// make returns the value of a key. It creates the key if v is nil.
func (s *store) make(v *value, key string, kind valueKind) *value {
	if v == nil {
		v = &value{kind: kind}
		s.keys[key] = v
	}
	return v
}

func number(n int) any { return int64(n) }

func truth(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

func (s *store) del(_ *value, keys []string) any {
	n := 0
	for _, key := range keys {
		if s.get(key) != nil {
			delete(s.keys, key)
			n++
		}
	}
	return number(n)
}

func (s *store) exists(v *value, _ []string) any { return truth(v != nil) }

func (s *store) pttl(v *value, _ []string) any {
	switch {
	case v == nil:
		return int64(-2)
	case v.expires == 0:
		return int64(-1)
	}
	return v.expires - s.now
}

func (s *store) pexpire(v *value, args []string) any {
	ms, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return errorReply("ERR value is not an integer or out of range")
	}
	at := s.now + ms
	if v == nil || len(args) > 2 && strings.EqualFold(args[2], "GT") && (v.expires == 0 || at <= v.expires) {
		return int64(0)
	}
	if ms <= 0 {
		delete(s.keys, args[0])
	}
	v.expires = at
	return int64(1)
}

func (s *store) set(_ *value, args []string) any {
	v := &value{text: args[1]}
	if len(args) == 4 && strings.EqualFold(args[2], "PX") {
		ms, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil || ms <= 0 {
			return errorReply("ERR invalid expire time in 'set' command")
		}
		v.expires = s.now + ms
	}
	s.keys[args[0]] = v
	return status("OK")
}

func (s *store) getString(v *value, _ []string) any {
	if v == nil {
		return nil
	}
	return v.text
}

func (s *store) incr(v *value, args []string) any {
	v = s.make(v, args[0], stringValue)
	n, err := strconv.ParseInt(cmp0(v.text), 10, 64)
	if err != nil {
		return errorReply("ERR value is not an integer or out of range")
	}
	v.text = strconv.FormatInt(n+1, 10)
	return n + 1
}

func cmp0(text string) string {
	if text == "" {
		return "0"
	}
	return text
}

func (s *store) hset(v *value, args []string) any {
	v = s.make(v, args[0], hashValue)
	added := 0
	for i := 1; i+1 < len(args); i += 2 {
		if v.setField(args[i], args[i+1]) {
			added++
		}
	}
	return number(added)
}

func (v *value) setField(name, text string) (added bool) {
	for i := range v.fields {
		if v.fields[i].name == name {
			v.fields[i].value = text
			return false
		}
	}
	v.fields = append(v.fields, field{name, text})
	return true
}

func (s *store) hsetnx(v *value, args []string) any {
	if _, found := v.field(args[1]); found {
		return int64(0)
	}
	s.make(v, args[0], hashValue).setField(args[1], args[2])
	return int64(1)
}

func (s *store) hget(v *value, args []string) any {
	if text, found := v.field(args[1]); found {
		return text
	}
	return nil
}

func (s *store) hmget(v *value, args []string) any {
	replies := make([]any, 0, len(args)-1)
	for _, name := range args[1:] {
		replies = append(replies, s.hget(v, []string{"", name}))
	}
	return replies
}

func (s *store) hdel(v *value, args []string) any {
	if v == nil {
		return int64(0)
	}
	before := len(v.fields)
	v.fields = slices.DeleteFunc(v.fields, func(f field) bool { return slices.Contains(args[1:], f.name) })
	return number(before - len(v.fields))
}

func (s *store) hexists(v *value, args []string) any {
	_, found := v.field(args[1])
	return truth(found)
}

func (s *store) hlen(v *value, _ []string) any {
	if v == nil {
		return int64(0)
	}
	return number(len(v.fields))
}

func (s *store) hkeys(v *value, _ []string) any {
	names := []any{}
	if v != nil {
		for _, f := range v.fields {
			names = append(names, f.name)
		}
	}
	return names
}

// hrandfield knows only a positive count WITHVALUES.
func (s *store) hrandfield(v *value, args []string) any {
	if v == nil {
		return []any{}
	}
	count, _ := strconv.Atoi(args[1])
	fields := v.fields
	if count < len(fields) {
		fields = slices.Clone(fields)
		s.rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		fields = fields[:count]
	}
	var replies []any
	for _, f := range fields {
		replies = append(replies, f.name, f.value)
	}
	return replies
}

func (s *store) rpush(v *value, args []string) any {
	v = s.make(v, args[0], listValue)
	v.list = append(v.list, args[1:]...)
	return number(len(v.list))
}

func (s *store) lindex(v *value, args []string) any {
	i, _ := strconv.Atoi(args[1])
	if v == nil {
		return nil
	}
	if i < 0 {
		i += len(v.list)
	}
	if i < 0 || i >= len(v.list) {
		return nil
	}
	return v.list[i]
}

func (s *store) llen(v *value, _ []string) any {
	if v == nil {
		return int64(0)
	}
	return number(len(v.list))
}

// lpos knows MAXLEN with a positive length only.
func (s *store) lpos(v *value, args []string) any {
	if v == nil {
		return nil
	}
	list := v.list
	if len(args) == 4 {
		most, _ := strconv.Atoi(args[3])
		list = list[:min(most, len(list))]
	}
	if i := slices.Index(list, args[1]); i >= 0 {
		return number(i)
	}
	return nil
}

func (s *store) lset(v *value, args []string) any {
	if v == nil {
		return errorReply("ERR no such key")
	}
	i, _ := strconv.Atoi(args[1])
	if i < 0 {
		i += len(v.list)
	}
	if i < 0 || i >= len(v.list) {
		return errorReply("ERR index out of range")
	}
	v.list[i] = args[2]
	return status("OK")
}

func (s *store) lrange(v *value, args []string) any {
	items := []any{}
	if v == nil {
		return items
	}
	from, _ := strconv.Atoi(args[1])
	to, _ := strconv.Atoi(args[2])
	if from < 0 {
		from = max(0, from+len(v.list))
	}
	if to < 0 {
		to += len(v.list)
	}
	for i := from; i <= min(to, len(v.list)-1); i++ {
		items = append(items, v.list[i])
	}
	return items
}

func (s *store) lrem(v *value, args []string) any {
	count, _ := strconv.Atoi(args[1])
	if v == nil {
		return int64(0)
	}
	removed := 0
	remove := func(item string) bool {
		if item != args[2] || count != 0 && removed == max(count, -count) {
			return false
		}
		removed++
		return true
	}
	if count < 0 { // from the end
		slices.Reverse(v.list)
	}
	v.list = slices.DeleteFunc(v.list, remove)
	if count < 0 {
		slices.Reverse(v.list)
	}
	return number(removed)
}

func (v *value) member(name string) int {
	if v == nil {
		return -1
	}
	return slices.IndexFunc(v.members, func(m member) bool { return m.name == name })
}

func (s *store) zadd(v *value, args []string) any {
	score, err := strconv.ParseFloat(args[1], 64)
	if err != nil {
		return errorReply("ERR value is not a valid float")
	}
	v = s.make(v, args[0], zsetValue)
	if i := v.member(args[2]); i >= 0 {
		v.members[i].score = score
		return int64(0)
	}
	v.members = append(v.members, member{args[2], score})
	return int64(1)
}

func (s *store) zincrby(v *value, args []string) any {
	by, err := strconv.ParseFloat(args[1], 64)
	if err != nil {
		return errorReply("ERR value is not a valid float")
	}
	v = s.make(v, args[0], zsetValue)
	i := v.member(args[2])
	if i < 0 {
		i = len(v.members)
		v.members = append(v.members, member{name: args[2]})
	}
	v.members[i].score += by
	return formatScore(v.members[i].score)
}

func (s *store) zcard(v *value, _ []string) any {
	if v == nil {
		return int64(0)
	}
	return number(len(v.members))
}

func (s *store) zrank(v *value, args []string) any {
	i := v.member(args[1])
	if i < 0 {
		return nil
	}
	rank := 0
	for _, m := range v.members {
		if m.score < v.members[i].score || m.score == v.members[i].score && m.name < args[1] {
			rank++
		}
	}
	return number(rank)
}

func (s *store) zrem(v *value, args []string) any {
	removed := 0
	for _, name := range args[1:] {
		if i := v.member(name); i >= 0 {
			v.members = slices.Delete(v.members, i, i+1)
			removed++
		}
	}
	return number(removed)
}

func (s *store) zscore(v *value, args []string) any {
	if i := v.member(args[1]); i >= 0 {
		return formatScore(v.members[i].score)
	}
	return nil
}

func formatScore(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (s *store) time(*value, []string) any {
	return []any{strconv.FormatInt(s.us/1e6, 10), strconv.FormatInt(s.us%1e6, 10)}
}
