package memredis

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// An Error is an error reply.
type Error string

func (e Error) Error() string { return string(e) }

// RedisError marks the error as a reply, for go-redis.
func (Error) RedisError() {}

// A Status is a status reply, such as OK.
type Status string

const (
	errWrongType   = Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	errNotInteger  = Error("ERR value is not an integer or out of range")
	errNotFloat    = Error("ERR value is not a valid float")
	errNotRange    = Error("ERR min or max is not a float")
	errHashInteger = Error("ERR hash value is not an integer")
	errSyntax      = Error("ERR syntax error")
)

// A command describes how a DB executes a command.
type command struct {
	access
	least, most int // number of arguments
	// of is the kind of the key, which is the first argument. It is unused if there is no key.
	of kind
	// numbers says which arguments after the key must be integers (i), floats (f) or ends of a range of
	// scores (r), and where options of ZADD may stand before those (o).
	numbers string
	// do changes a key. It gets an empty key if there is none.
	do func(d *DB, k *key, args []string) any
	// free executes a command that is not about one key.
	free func(d *DB, args []string) any
}

// An access is what a command may do to the content.
type access byte

const (
	reads  access = iota
	writes        // a replica refuses it
	grows         // it writes, and is refused when the memory is full
)

// many is the most of a command that takes any number of arguments.
const many = math.MaxInt

var commands = map[string]command{
	"DEL":        {access: writes, least: 1, most: many, free: del},
	"EXISTS":     {least: 1, most: many, free: exists},
	"PTTL":       {least: 1, most: 1, free: func(d *DB, args []string) any { return d.TTL(args[0]) }},
	"TIME":       {free: clock},
	"PUBLISH":    {least: 2, most: 2, free: func(d *DB, args []string) any { return d.publish("PUBLISH", args) }},
	"SPUBLISH":   {least: 2, most: 2, free: func(d *DB, args []string) any { return d.publish("SPUBLISH", args) }},
	"PUBSUB":     {least: 2, most: many, free: pubsub},
	"PEXPIRE":    {writes, 2, 3, anyKind, "i", pexpire, nil},
	"PERSIST":    {writes, 1, 1, anyKind, "", persist, nil},
	"GET":        {reads, 1, 1, stringKind, "", get, nil},
	"SET":        {grows, 2, 4, anyKind, "..i", set, nil},
	"INCR":       {grows, 1, 1, stringKind, "", incrby, nil},
	"INCRBY":     {grows, 2, 2, stringKind, "i", incrby, nil},
	"HSET":       {grows, 3, many, hashKind, "", hset, nil},
	"HSETNX":     {grows, 3, 3, hashKind, "", hsetnx, nil},
	"HGET":       {reads, 2, 2, hashKind, "", hget, nil},
	"HMGET":      {reads, 2, many, hashKind, "", hmget, nil},
	"HEXISTS":    {reads, 2, 2, hashKind, "", hexists, nil},
	"HDEL":       {writes, 2, many, hashKind, "", remove, nil},
	"HLEN":       {reads, 1, 1, hashKind, "", size, nil},
	"HKEYS":      {reads, 1, 1, hashKind, "", hkeys, nil},
	"HINCRBY":    {grows, 3, 3, hashKind, ".i", hincrby, nil},
	"HRANDFIELD": {reads, 3, 3, hashKind, "i", hrandfield, nil},
	"RPUSH":      {grows, 2, many, listKind, "", rpush, nil},
	"LINDEX":     {reads, 2, 2, listKind, "", lindex, nil},
	"LRANGE":     {reads, 3, 3, listKind, "ii", lrange, nil},
	"LLEN":       {reads, 1, 1, listKind, "", size, nil},
	"LPOS":       {reads, 2, 4, listKind, "..i", lpos, nil},
	"LREM":       {writes, 3, 3, listKind, "i", lrem, nil},
	"LSET":       {grows, 3, 3, listKind, "", lset, nil},
	"ZADD":       {grows, 3, 5, zsetKind, "of", zadd, nil},
	"ZCARD":      {reads, 1, 1, zsetKind, "", size, nil},
	"ZCOUNT":     {reads, 3, 3, zsetKind, "rr", zcount, nil},
	"ZINCRBY":    {grows, 3, 3, zsetKind, "f", zincrby, nil},
	"ZMSCORE":    {reads, 2, many, zsetKind, "", zmscore, nil},
	"ZRANGE":     {reads, 3, 4, zsetKind, "ii", zrange, nil},
	"ZRANK":      {reads, 2, 2, zsetKind, "", zrank, nil},
	"ZREM":       {writes, 2, many, zsetKind, "", remove, nil},
	"ZSCORE":     {reads, 2, 2, zsetKind, "", zscore, nil},

	"ZRANGEBYSCORE":    {reads, 3, 3, zsetKind, "rr", zrangebyscore, nil},
	"ZREMRANGEBYSCORE": {writes, 3, 3, zsetKind, "rr", zremrangebyscore, nil},
}

// Do executes a command. The reply is an int64, a string, a Status, an Error, nil, or a []any of
// these.
func (d *DB) Do(args ...string) any {
	c, err := parseCall(args)
	if err != nil {
		return err
	}
	return d.execute(c, args[1:])
}

// parseCall returns the command of a call.
func parseCall(args []string) (c command, err error) {
	c, known := commands[strings.ToUpper(args[0])]
	switch {
	case !known:
		return c, Error("ERR unknown command '" + args[0] + "'")
	case len(args)-1 < c.least || len(args)-1 > c.most:
		return c, Error("ERR wrong number of arguments for '" + strings.ToLower(args[0]) + "' command")
	}
	at := 2
	for _, number := range c.numbers {
		if number == 'o' {
			at += options(args[at:])
			continue
		}
		if at == len(args) {
			break
		}
		switch number {
		case 'i':
			_, err = integer(args[at])
		case 'f':
			_, err = parseFloat(args[at])
		case 'r':
			_, _, err = rangeEnd(args[at])
		}
		if err != nil {
			return c, err
		}
		at++
	}
	return c, nil
}

// execute executes a command that parseCall returned.
func (d *DB) execute(c command, args []string) any {
	if c.free != nil {
		return c.free(d, args)
	}
	k := d.find(args[0])
	missing := k == nil
	switch {
	case missing:
		k = &key{name: args[0], kind: c.of}
	case c.of != anyKind && k.kind != c.of:
		return errWrongType
	}
	reply := c.do(d, k, args)
	if c.access == reads {
		return reply
	}
	switch empty := k.size() == 0; {
	case missing && !empty:
		d.insert(*k)
	case !missing && empty:
		d.Delete(k.name)
	}
	d.written(args[0])
	return reply
}

func (d *DB) written(name string) {
	if d.Written != nil {
		d.Written(name)
	}
}

func del(d *DB, names []string) any {
	return count(names, func(name string) bool {
		defer d.written(name)
		return d.Delete(name)
	})
}

func exists(d *DB, names []string) any {
	return count(names, func(name string) bool { return d.find(name) != nil })
}

// count counts the names for which f is true.
func count(names []string, f func(string) bool) int64 {
	n := int64(0)
	for _, name := range names {
		n += truth(f(name))
	}
	return n
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func clock(d *DB, _ []string) any {
	return []any{itoa(d.Now / 1000), itoa(d.Now % 1000 * 1000)}
}

func (d *DB) publish(command string, args []string) any {
	if d.Publish == nil {
		return int64(0)
	}
	return int64(d.Publish(command, args[0], args[1]))
}

func pubsub(d *DB, args []string) any {
	if args[0] != "NUMSUB" && args[0] != "SHARDNUMSUB" {
		return errSyntax
	}
	var counts []any
	for _, channel := range args[1:] {
		n := 0
		if d.Listeners != nil {
			n = d.Listeners(args[0], channel)
		}
		counts = append(counts, channel, int64(n))
	}
	return counts
}

func pexpire(d *DB, k *key, args []string) any {
	ms := number(args[1])
	if len(args) == 3 && !strings.EqualFold(args[2], "GT") {
		return Error("ERR Unsupported option " + args[2])
	}
	switch {
	case k.size() == 0, len(args) == 3 && (k.expires == 0 || ms <= k.ttl(d.Now)):
		return int64(0)
	case ms <= 0:
		k.list, k.pairs = nil, nil
	default:
		k.expires = d.Now + ms
	}
	return int64(1)
}

func persist(_ *DB, k *key, _ []string) any {
	had := k.size() > 0 && k.expires != 0
	k.expires = 0
	return truth(had)
}

func get(_ *DB, k *key, _ []string) any {
	if k.size() == 0 {
		return nil
	}
	return k.list[0]
}

func set(d *DB, k *key, args []string) any {
	expires := int64(0)
	if len(args) > 2 {
		if len(args) != 4 || !strings.EqualFold(args[2], "PX") {
			return errSyntax
		}
		if number(args[3]) <= 0 {
			return Error("ERR invalid expire time in 'set' command")
		}
		expires = d.Now + number(args[3])
	}
	*k = key{name: args[0], kind: stringKind, list: []string{args[1]}, expires: expires}
	return Status("OK")
}

// incrby is INCR and INCRBY.
func incrby(_ *DB, k *key, args []string) any {
	by := int64(1)
	if len(args) == 2 {
		by = number(args[1])
	}
	if k.size() == 0 {
		k.list = []string{"0"}
	}
	n, err := integer(k.list[0])
	if err != nil {
		return err
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return Error("ERR increment or decrement would overflow")
	}
	k.list[0] = itoa(n + by)
	return n + by
}

func hset(_ *DB, k *key, args []string) any {
	if len(args)%2 == 0 {
		return Error("ERR wrong number of arguments for 'hset' command")
	}
	n := int64(0)
	for i := 1; i < len(args); i += 2 {
		p, created := k.put(args[i])
		p.value = args[i+1]
		n += truth(created)
	}
	return n
}

func hsetnx(_ *DB, k *key, args []string) any {
	p, created := k.put(args[1])
	if created {
		p.value = args[2]
	}
	return truth(created)
}

func (k *key) value(field string) any {
	if i, ok := k.pair(field); ok {
		return k.pairs[i].value
	}
	return nil
}

func hget(_ *DB, k *key, args []string) any { return k.value(args[1]) }

func hmget(_ *DB, k *key, args []string) any {
	values := make([]any, len(args)-1)
	for i, field := range args[1:] {
		values[i] = k.value(field)
	}
	return values
}

func hexists(_ *DB, k *key, args []string) any {
	_, found := k.pair(args[1])
	return truth(found)
}

// remove is HDEL and ZREM.
func remove(_ *DB, k *key, args []string) any { return count(args[1:], k.remove) }

// size is HLEN, LLEN and ZCARD.
func size(_ *DB, k *key, _ []string) any { return int64(k.size()) }

func hkeys(_ *DB, k *key, _ []string) any {
	fields := make([]any, len(k.pairs))
	for i := range k.pairs {
		fields[i] = k.pairs[i].name
	}
	return fields
}

func hincrby(_ *DB, k *key, args []string) any {
	n := int64(0)
	if value, ok := k.value(args[1]).(string); ok {
		var err error
		if n, err = integer(value); err != nil {
			return errHashInteger
		}
	}
	n += number(args[2])
	p, _ := k.put(args[1])
	p.value = itoa(n)
	return n
}

// hrandfield takes a positive count and WITHVALUES.
func hrandfield(d *DB, k *key, args []string) any {
	n := number(args[1])
	if !strings.EqualFold(args[2], "WITHVALUES") || n <= 0 {
		return errSyntax
	}
	pairs := k.pairs
	if int64(len(pairs)) > n {
		if d.Rand == nil {
			panic("memredis: HRANDFIELD of a hash with more fields than it returns")
		}
		pairs = slices.Clone(pairs)
		d.Rand.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		pairs = pairs[:n]
	}
	all := []any{}
	for _, p := range pairs {
		all = append(all, p.name, p.value)
	}
	return all
}

func rpush(_ *DB, k *key, args []string) any {
	k.list = append(k.list, args[1:]...)
	return int64(len(k.list))
}

// index returns the place of an item, which is negative if it counts from the end. ok is false if
// there is no such item.
func (k *key) index(text string) (i int64, ok bool, err error) {
	if i, err = integer(text); i < 0 {
		i += int64(len(k.list))
	}
	return i, err == nil && i >= 0 && i < int64(len(k.list)), err
}

func lindex(_ *DB, k *key, args []string) any {
	i, ok, err := k.index(args[1])
	switch {
	case k.size() == 0:
		return nil
	case err != nil:
		return err
	case !ok:
		return nil
	}
	return k.list[i]
}

func lset(_ *DB, k *key, args []string) any {
	i, ok, err := k.index(args[1])
	switch {
	case k.size() == 0:
		return Error("ERR no such key")
	case err != nil:
		return err
	case !ok:
		return Error("ERR index out of range")
	}
	k.list[i] = args[2]
	return Status("OK")
}

// places returns the first and the last place of a range among n items. Negative places count from the
// end.
func places(from, to string, n int) (first, last int64) {
	first, last = number(from), number(to)
	if first < 0 {
		first = max(first+int64(n), 0)
	}
	if last < 0 {
		last += int64(n)
	}
	return first, min(last, int64(n)-1)
}

func lrange(_ *DB, k *key, args []string) any {
	first, last := places(args[1], args[2], len(k.list))
	items := []any{}
	for i := first; i <= last; i++ {
		items = append(items, k.list[i])
	}
	return items
}

// lpos takes a positive MAXLEN.
func lpos(_ *DB, k *key, args []string) any {
	list := k.list
	if len(args) > 2 {
		if len(args) != 4 || !strings.EqualFold(args[2], "MAXLEN") {
			return errSyntax
		}
		list = list[:min(number(args[3]), int64(len(list)))]
	}
	if i := slices.Index(list, args[1]); i >= 0 {
		return int64(i)
	}
	return nil
}

func lrem(_ *DB, k *key, args []string) any {
	n, removed := number(args[1]), int64(0)
	if n < 0 { // from the end
		slices.Reverse(k.list)
	}
	k.list = slices.DeleteFunc(k.list, func(item string) bool {
		if item != args[2] || n != 0 && removed == max(n, -n) {
			return false
		}
		removed++
		return true
	})
	if n < 0 {
		slices.Reverse(k.list)
	}
	return removed
}

// options counts the options of ZADD at the beginning of some arguments.
func options(args []string) int {
	i := slices.IndexFunc(args, func(arg string) bool { return !strings.EqualFold(arg, "GT") && !strings.EqualFold(arg, "XX") })
	if i < 0 {
		return len(args)
	}
	return i
}

func zadd(_ *DB, k *key, args []string) any {
	n := options(args[1:])
	if len(args) != n+3 {
		return errSyntax
	}
	has := func(option string) bool {
		return slices.ContainsFunc(args[1:n+1], func(arg string) bool { return strings.EqualFold(arg, option) })
	}
	score, _ := parseFloat(args[n+1])
	i, found := k.pair(args[n+2])
	if !found && has("XX") || found && has("GT") && score <= k.pairs[i].score {
		return int64(0)
	}
	p, created := k.put(args[n+2])
	p.score = score
	return truth(created)
}

// rangeEnd parses an end of a range of scores. open means that the score itself is outside.
func rangeEnd(s string) (score float64, open bool, err error) {
	s, open = strings.CutPrefix(s, "(")
	if score, err = parseFloat(s); err != nil {
		err = errNotRange
	}
	return score, open, err
}

// within returns a function that reports whether the score of a pair is in a range.
func within(from, to string) func(pair) bool {
	low, above, _ := rangeEnd(from)
	high, below, _ := rangeEnd(to)
	return func(p pair) bool {
		return p.score >= low && p.score <= high && !(above && p.score == low) && !(below && p.score == high)
	}
}

// byScore returns the members of a sorted set in order.
func (k *key) byScore() []pair {
	ordered := slices.Clone(k.pairs)
	slices.SortStableFunc(ordered, func(a, b pair) int { return cmp.Compare(a.score, b.score) })
	return ordered
}

func zcount(_ *DB, k *key, args []string) any {
	in, n := within(args[1], args[2]), int64(0)
	for _, p := range k.pairs {
		n += truth(in(p))
	}
	return n
}

func zrangebyscore(_ *DB, k *key, args []string) any {
	in, members := within(args[1], args[2]), []any{}
	for _, p := range k.byScore() {
		if in(p) {
			members = append(members, p.name)
		}
	}
	return members
}

func zremrangebyscore(_ *DB, k *key, args []string) any {
	before := len(k.pairs)
	k.pairs = slices.DeleteFunc(k.pairs, within(args[1], args[2]))
	return int64(before - len(k.pairs))
}

// zrange takes places, not scores.
func zrange(_ *DB, k *key, args []string) any {
	if len(args) > 3 && !strings.EqualFold(args[3], "WITHSCORES") {
		return errSyntax
	}
	first, last := places(args[1], args[2], len(k.pairs))
	ordered, members := k.byScore(), []any{}
	for i := first; i <= last; i++ {
		members = append(members, ordered[i].name)
		if len(args) > 3 {
			members = append(members, formatFloat(ordered[i].score))
		}
	}
	return members
}

func zmscore(d *DB, k *key, args []string) any {
	scores := make([]any, len(args)-1)
	for i, member := range args[1:] {
		scores[i] = zscore(d, k, []string{args[0], member})
	}
	return scores
}

func zincrby(_ *DB, k *key, args []string) any {
	p, _ := k.put(args[2])
	by, _ := parseFloat(args[1])
	p.score += by
	return formatFloat(p.score)
}

func zrank(_ *DB, k *key, args []string) any {
	i, ok := k.pair(args[1])
	if !ok {
		return nil
	}
	rank := int64(0)
	for _, p := range k.pairs {
		if score := k.pairs[i].score; p.score < score || p.score == score && p.name < args[1] {
			rank++
		}
	}
	return rank
}

func zscore(_ *DB, k *key, args []string) any {
	if i, ok := k.pair(args[1]); ok {
		return formatFloat(k.pairs[i].score)
	}
	return nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func integer(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errNotInteger
	}
	return n, nil
}

// number returns an integer that parseCall has checked.
func number(s string) int64 {
	n, _ := integer(s)
	return n
}

func parseFloat(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) {
		return 0, errNotFloat
	}
	return f, nil
}

// formatFloat formats a number as Redis does, with %.17g. Whole numbers below 2^53 then have
// neither a fraction nor an exponent.
func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 {
		return itoa(int64(f))
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
