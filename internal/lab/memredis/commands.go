package memredis

import (
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
	errHashInteger = Error("ERR hash value is not an integer")
	errSyntax      = Error("ERR syntax error")
)

// Do executes a command. The reply is an int64, a string, a Status, an Error, nil, or a []any of
// these.
func (d *DB) Do(args ...string) any {
	c, ok := commands[strings.ToUpper(args[0])]
	switch {
	case !ok:
		return Error("ERR unknown command '" + args[0] + "'")
	case len(args)-1 < c.least || c.most >= 0 && len(args)-1 > c.most:
		return Error("ERR wrong number of arguments for '" + strings.ToLower(args[0]) + "' command")
	}
	reply, err := c.do(d, args[1:])
	if err != nil {
		return err
	}
	return reply
}

type command struct {
	least, most int // arguments; most -1: any number
	do          func(d *DB, args []string) (any, error)
}

var commands = map[string]command{
	"TIME":       {0, 0, (*DB).time},
	"DEL":        {1, -1, (*DB).del},
	"EXISTS":     {1, -1, (*DB).exists},
	"PTTL":       {1, 1, (*DB).pttl},
	"PEXPIRE":    {2, 3, (*DB).pexpire},
	"GET":        {1, 1, (*DB).getString},
	"SET":        {2, 4, (*DB).set},
	"INCR":       {1, 1, (*DB).incr},
	"HSET":       {3, -1, (*DB).hset},
	"HSETNX":     {3, 3, (*DB).hsetnx},
	"HGET":       {2, 2, (*DB).hget},
	"HMGET":      {2, -1, (*DB).hmget},
	"HEXISTS":    {2, 2, (*DB).hexists},
	"HDEL":       {2, -1, (*DB).hdel},
	"HLEN":       {1, 1, (*DB).hlen},
	"HKEYS":      {1, 1, (*DB).hkeys},
	"HINCRBY":    {3, 3, (*DB).hincrby},
	"HRANDFIELD": {3, 3, (*DB).hrandfield},
	"RPUSH":      {2, -1, (*DB).rpush},
	"LINDEX":     {2, 2, (*DB).lindex},
	"LRANGE":     {3, 3, (*DB).lrange},
	"LLEN":       {1, 1, (*DB).llen},
	"LPOS":       {2, 4, (*DB).lpos},
	"LREM":       {3, 3, (*DB).lrem},
	"LSET":       {3, 3, (*DB).lset},
	"ZADD":       {3, 3, (*DB).zadd},
	"ZCARD":      {1, 1, (*DB).zcard},
	"ZRANK":      {2, 2, (*DB).zrank},
	"ZREM":       {2, -1, (*DB).zrem},
	"ZSCORE":     {2, 2, (*DB).zscore},
	"ZINCRBY":    {3, 3, (*DB).zincrby},
	"PUBLISH":    {2, 2, func(d *DB, args []string) (any, error) { return d.publish("PUBLISH", args) }},
	"PUBSUB":     {2, -1, (*DB).pubsub},
	"SPUBLISH":   {2, 2, func(d *DB, args []string) (any, error) { return d.publish("SPUBLISH", args) }},
}

func (d *DB) time([]string) (any, error) {
	return []any{strconv.FormatInt(d.Now/1000, 10), strconv.FormatInt(d.Now%1000*1000, 10)}, nil
}

func (d *DB) publish(command string, args []string) (any, error) {
	if d.Publish == nil {
		return int64(0), nil
	}
	return int64(d.Publish(command, args[0], args[1])), nil
}

func (d *DB) pubsub(args []string) (any, error) {
	if args[0] != "NUMSUB" && args[0] != "SHARDNUMSUB" {
		return nil, errSyntax
	}
	var counts []any
	for _, channel := range args[1:] {
		n := 0
		if d.Listeners != nil {
			n = d.Listeners(args[0], channel)
		}
		counts = append(counts, channel, int64(n))
	}
	return counts, nil
}

func (d *DB) del(args []string) (any, error) {
	return count(args, d.Delete), nil
}

func (d *DB) exists(args []string) (any, error) {
	return count(args, func(name string) bool { _, ok := d.find(name); return ok }), nil
}

// count counts the names for which f is true.
func count(names []string, f func(string) bool) int64 {
	n := int64(0)
	for _, name := range names {
		if f(name) {
			n++
		}
	}
	return n
}

func (d *DB) pttl(args []string) (any, error) { return d.TTL(args[0]), nil }

func (d *DB) pexpire(args []string) (any, error) {
	ms, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	i, ok := d.find(args[0])
	if len(args) == 3 {
		if !strings.EqualFold(args[2], "GT") {
			return nil, Error("ERR Unsupported option " + args[2])
		}
		if ok && (d.keys[i].ttl == NoTTL || ms <= d.keys[i].ttl) {
			return int64(0), nil
		}
	}
	switch {
	case !ok:
		return int64(0), nil
	case ms <= 0:
		d.Delete(args[0])
	default:
		d.keys[i].ttl = ms
	}
	return int64(1), nil
}

func (d *DB) getString(args []string) (any, error) {
	k, err := d.get(args[0], stringKind)
	if k == nil {
		return nil, err
	}
	return k.str, nil
}

func (d *DB) set(args []string) (any, error) {
	ttl := int64(NoTTL)
	if len(args) > 2 {
		if len(args) != 4 || !strings.EqualFold(args[2], "PX") {
			return nil, errSyntax
		}
		var err error
		if ttl, err = integer(args[3]); err != nil {
			return nil, err
		}
		if ttl <= 0 {
			return nil, Error("ERR invalid expire time in 'set' command")
		}
	}
	d.Delete(args[0])
	k, _ := d.create(args[0], stringKind)
	k.str, k.ttl = args[1], ttl
	return Status("OK"), nil
}

func (d *DB) incr(args []string) (any, error) {
	k, err := d.get(args[0], stringKind)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	if k != nil {
		if n, err = integer(k.str); err != nil {
			return nil, err
		}
	}
	if n == math.MaxInt64 {
		return nil, Error("ERR increment or decrement would overflow")
	}
	k, _ = d.create(args[0], stringKind)
	k.str = strconv.FormatInt(n+1, 10)
	return n + 1, nil
}

func (d *DB) hset(args []string) (any, error) {
	if len(args)%2 == 0 {
		return nil, Error("ERR wrong number of arguments for 'hset' command")
	}
	k, err := d.create(args[0], hashKind)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for i := 1; i < len(args); i += 2 {
		p, created := k.put(args[i])
		if p.value = args[i+1]; created {
			n++
		}
	}
	return n, nil
}

func (d *DB) hsetnx(args []string) (any, error) {
	k, err := d.create(args[0], hashKind)
	if err != nil {
		return nil, err
	}
	if _, ok := k.pair(args[1]); ok {
		return int64(0), nil
	}
	p, _ := k.put(args[1])
	p.value = args[2]
	return int64(1), nil
}

func (d *DB) hget(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return nil, err
	}
	return k.value(args[1]), nil
}

func (k *key) value(field string) any {
	if i, ok := k.pair(field); ok {
		return k.pairs[i].value
	}
	return nil
}

func (d *DB) hmget(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if err != nil {
		return nil, err
	}
	values := make([]any, len(args)-1)
	if k != nil {
		for i, field := range args[1:] {
			values[i] = k.value(field)
		}
	}
	return values, nil
}

func (d *DB) hexists(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return int64(0), err
	}
	return count(args[1:], func(field string) bool { _, ok := k.pair(field); return ok }), nil
}

func (d *DB) hdel(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return int64(0), err
	}
	n := count(args[1:], k.remove)
	d.drop(k)
	return n, nil
}

func (d *DB) hlen(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return int64(0), err
	}
	return int64(len(k.pairs)), nil
}

func (d *DB) hkeys(args []string) (any, error) {
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return []any{}, err
	}
	fields := make([]any, len(k.pairs))
	for i := range k.pairs {
		fields[i] = k.pairs[i].name
	}
	return fields, nil
}

func (d *DB) hincrby(args []string) (any, error) {
	by, err := integer(args[2])
	if err != nil {
		return nil, err
	}
	k, err := d.get(args[0], hashKind)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	if k != nil {
		if value, ok := k.value(args[1]).(string); ok {
			if n, err = integer(value); err != nil {
				return nil, errHashInteger
			}
		}
	}
	k, _ = d.create(args[0], hashKind)
	p, _ := k.put(args[1])
	p.value = strconv.FormatInt(n+by, 10)
	return n + by, nil
}

// hrandfield takes a positive count and WITHVALUES. It panics if the hash has more fields: Redis
// would pick some at random, which a model checker cannot explore.
func (d *DB) hrandfield(args []string) (any, error) {
	n, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(args[2], "WITHVALUES") || n <= 0 {
		return nil, errSyntax
	}
	k, err := d.get(args[0], hashKind)
	if k == nil {
		return []any{}, err
	}
	if int64(len(k.pairs)) > n {
		panic("memredis: HRANDFIELD of a hash with more fields than it returns")
	}
	var all []any
	for _, p := range k.pairs {
		all = append(all, p.name, p.value)
	}
	return all, nil
}

func (d *DB) rpush(args []string) (any, error) {
	k, err := d.create(args[0], listKind)
	if err != nil {
		return nil, err
	}
	k.list = append(k.list, args[1:]...)
	return int64(len(k.list)), nil
}

func (d *DB) lindex(args []string) (any, error) {
	k, err := d.get(args[0], listKind)
	if k == nil {
		return nil, err
	}
	i, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(len(k.list))
	}
	if i < 0 || i >= int64(len(k.list)) {
		return nil, nil
	}
	return k.list[i], nil
}

func (d *DB) lrange(args []string) (any, error) {
	first, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	last, err := integer(args[2])
	if err != nil {
		return nil, err
	}
	k, err := d.get(args[0], listKind)
	if k == nil {
		return []any{}, err
	}
	n := int64(len(k.list))
	if first < 0 {
		first = max(first+n, 0)
	}
	if last < 0 {
		last += n
	}
	items := []any{}
	for i := first; i <= min(last, n-1); i++ {
		items = append(items, k.list[i])
	}
	return items, nil
}

func (d *DB) llen(args []string) (any, error) {
	k, err := d.get(args[0], listKind)
	if k == nil {
		return int64(0), err
	}
	return int64(len(k.list)), nil
}

// lpos takes a positive MAXLEN.
func (d *DB) lpos(args []string) (any, error) {
	most := int64(math.MaxInt64)
	if len(args) > 2 {
		var err error
		if len(args) != 4 || !strings.EqualFold(args[2], "MAXLEN") {
			return nil, errSyntax
		}
		if most, err = integer(args[3]); err != nil {
			return nil, err
		}
	}
	k, err := d.get(args[0], listKind)
	if k == nil {
		return nil, err
	}
	if i := slices.Index(k.list[:min(most, int64(len(k.list)))], args[1]); i >= 0 {
		return int64(i), nil
	}
	return nil, nil
}

func (d *DB) lrem(args []string) (any, error) {
	n, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	k, err := d.get(args[0], listKind)
	if k == nil {
		return int64(0), err
	}
	removed := int64(0)
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
	d.drop(k)
	return removed, nil
}

func (d *DB) lset(args []string) (any, error) {
	k, err := d.get(args[0], listKind)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, Error("ERR no such key")
	}
	i, err := integer(args[1])
	if err != nil {
		return nil, err
	}
	if i < 0 {
		i += int64(len(k.list))
	}
	if i < 0 || i >= int64(len(k.list)) {
		return nil, Error("ERR index out of range")
	}
	k.list[i] = args[2]
	return Status("OK"), nil
}

func (d *DB) zadd(args []string) (any, error) {
	score, err := parseFloat(args[1])
	if err != nil {
		return nil, err
	}
	k, err := d.create(args[0], zsetKind)
	if err != nil {
		return nil, err
	}
	p, created := k.put(args[2])
	if p.score = score; created {
		return int64(1), nil
	}
	return int64(0), nil
}

func (d *DB) zcard(args []string) (any, error) {
	k, err := d.get(args[0], zsetKind)
	if k == nil {
		return int64(0), err
	}
	return int64(len(k.pairs)), nil
}

func (d *DB) zrank(args []string) (any, error) {
	k, err := d.get(args[0], zsetKind)
	if k == nil {
		return nil, err
	}
	i, ok := k.pair(args[1])
	if !ok {
		return nil, nil
	}
	rank := int64(0)
	for _, p := range k.pairs {
		if score := k.pairs[i].score; p.score < score || p.score == score && p.name < args[1] {
			rank++
		}
	}
	return rank, nil
}

func (d *DB) zrem(args []string) (any, error) {
	k, err := d.get(args[0], zsetKind)
	if k == nil {
		return int64(0), err
	}
	n := count(args[1:], k.remove)
	d.drop(k)
	return n, nil
}

func (d *DB) zscore(args []string) (any, error) {
	k, err := d.get(args[0], zsetKind)
	if k == nil {
		return nil, err
	}
	if i, ok := k.pair(args[1]); ok {
		return formatFloat(k.pairs[i].score), nil
	}
	return nil, nil
}

func (d *DB) zincrby(args []string) (any, error) {
	by, err := parseFloat(args[1])
	if err != nil {
		return nil, err
	}
	k, err := d.create(args[0], zsetKind)
	if err != nil {
		return nil, err
	}
	p, _ := k.put(args[2])
	p.score += by
	return formatFloat(p.score), nil
}

func integer(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errNotInteger
	}
	return n, nil
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
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}
