package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/internal/lab/memredis"
)

// A node is one simulated redis-server. The world's mutex guards it.
type node struct {
	world *world
	addr  string
	// rate is how fast its clock goes, relative to the world's.
	rate float64

	db      *memredis.DB
	scripts *memredis.Runner
	// loaded has the source of each script by its SHA.
	loaded map[string]string
	conns  []*conn
	// subs has the subscribers of each channel. The names of sharded channels have a prefix.
	subs map[string][]*conn

	down         bool
	loadingUntil time.Duration
	restarted    time.Duration // the latest restart
	pausedUntil  time.Duration
	// refuses is what the node answers until refusesUntil.
	refuses      refusal
	refusesUntil time.Duration

	executed int
	// changed has the semaphores whose permits the current script has written.
	changed []string
}

// A refusal is an error that a server returns for some time.
type refusal string

const (
	refusesNothing  refusal = ""
	outOfMemory     refusal = "OOM"
	readOnly        refusal = "READONLY"
	loading         refusal = "LOADING"
	busy            refusal = "BUSY"
	noPermission    refusal = "NOPERM"
	noPublishing    refusal = "NOPERM PUBLISH"
	cannotSave      refusal = "MISCONF"
	masterDown      refusal = "MASTERDOWN"
	tooManyClients  refusal = "ERR max number of clients reached"
	noScriptAllowed refusal = "ERR unknown command 'EVALSHA'"
)

// refusalTexts has the error replies to all commands, or to all scripts. The other refusals depend
// on what a script does.
var refusalTexts = map[refusal]memredis.Error{
	loading:         "LOADING Redis is loading the dataset in memory",
	busy:            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
	noPermission:    "NOPERM User sim has no permissions to run the 'evalsha' command",
	masterDown:      "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	cannotSave:      "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
	noScriptAllowed: "ERR unknown command 'EVALSHA', with args beginning with:",
}

func newNode(w *world, addr string, rate float64) *node {
	n := &node{world: w, addr: addr, rate: rate, loaded: make(map[string]string), subs: make(map[string][]*conn)}
	n.db = &memredis.DB{
		Listeners: func(command, channel string) int { return len(n.subs[subKey(command == "SHARDNUMSUB", channel)]) },
		Publish:   n.publish,
		Written:   w.written,
		Rand:      w.stream("store "+addr, 0),
	}
	n.scripts = memredis.NewRunner()
	n.tick()
	return n
}

// tick sets the server's clock.
func (n *node) tick() {
	us := int64(float64(n.world.now().Microseconds()) * n.rate)
	n.db.Now = worldEpoch + us/1000
}

// worldEpoch is the wall clock of the servers when a world begins, ms. Like a real one, it is far
// larger than any duration.
const worldEpoch = 1_700_000_000_000

// timeOf returns when the server's clock shows the given ms.
func (n *node) timeOf(ms int64) time.Duration {
	return time.Duration(float64(ms-worldEpoch) / n.rate * float64(time.Millisecond))
}

// expires returns when a key expires. ok is false if it never does, or if there is none.
func (n *node) expires(key string) (at time.Duration, ok bool) {
	ttl := n.db.TTL(key)
	return n.timeOf(n.db.Now + ttl), ttl >= 0
}

// receive executes commands that have arrived.
func (n *node) receive(c *conn, commands [][]string) {
	if n.down || c.dropped {
		return
	}
	n.tick()
	var replies []byte
	for _, args := range commands {
		reply := n.execute(c, args)
		n.executed++
		n.world.log(n, c, args, reply)
		for _, one := range reply {
			replies = memredis.AppendReply(replies, one)
		}
	}
	c.answer(replies)
}

// execute returns the replies to a command. Only subscriptions have several.
func (n *node) execute(c *conn, args []string) []any {
	name := strings.ToUpper(args[0])
	refuses := n.refusal()
	onlyScripts := refuses == noPermission || refuses == cannotSave || refuses == noScriptAllowed
	if text, found := refusalTexts[refuses]; found && (!onlyScripts || name == "EVAL" || name == "EVALSHA") {
		return []any{text}
	}
	switch name {
	case "SUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "SUNSUBSCRIBE":
		return n.subscription(c, strings.ToLower(name), args[1:])
	case "EVAL":
		n.loaded[memredis.SHA(args[1])] = args[1]
		return []any{n.eval(args[1], args[2:])}
	case "EVALSHA":
		source, known := n.loaded[args[1]]
		if !known {
			return []any{memredis.Error("NOSCRIPT No matching script. Please use EVAL.")}
		}
		return []any{n.eval(source, args[2:])}
	case "PING":
		if len(c.subscribed) > 0 {
			return []any{[]any{"pong", ""}}
		}
		return []any{memredis.Status("PONG")}
	case "CLUSTER":
		return []any{memredis.Error("ERR This instance has cluster support disabled")}
	case "HELLO", "CLIENT", "SELECT":
		return []any{handshakeReply(name)}
	}
	return []any{n.db.Do(args...)}
}

// refusal returns how the server refuses commands now.
func (n *node) refusal() refusal {
	switch now := n.world.now(); {
	case n.loadingUntil > now:
		return loading
	case n.refusesUntil > now:
		return n.refuses
	}
	return refusesNothing
}

// eval runs a script. args is what follows its text or digest.
func (n *node) eval(source string, args []string) any {
	keys := 0
	for _, digit := range args[0] {
		keys = keys*10 + int(digit-'0')
	}
	refuses := n.refusal()
	n.scripts.Full = refuses == outOfMemory
	n.scripts.ReadOnly = refuses == readOnly
	n.scripts.NoPublish = refuses == noPublishing
	n.changed = n.changed[:0]
	o := n.world.oracle
	guest := o.entering(n, args[1:1+keys], args[1+keys:])
	reply := n.scripts.Eval(n.db, source, args[1:1+keys], args[1+keys:])
	o.entered(n, guest)
	for _, name := range n.changed {
		o.checkGrants(name)
	}
	return reply
}

// subKey returns the key of a channel in node.subs.
func subKey(sharded bool, channel string) string {
	if sharded {
		return "s:" + channel
	}
	return "p:" + channel
}

func (n *node) subscription(c *conn, command string, channels []string) (replies []any) {
	sharded := strings.HasPrefix(command, "s") && !strings.HasPrefix(command, "sub")
	for _, channel := range channels {
		key := subKey(sharded, channel)
		if strings.Contains(command, "unsub") {
			n.unsubscribe(c, key)
		} else if !c.subscribed[key] {
			if c.subscribed == nil {
				c.subscribed = make(map[string]bool)
			}
			c.subscribed[key] = true
			if !c.dropped {
				n.subs[key] = append(n.subs[key], c)
			}
		}
		replies = append(replies, []any{command, channel, int64(len(c.subscribed))})
	}
	return replies
}

func (n *node) unsubscribe(c *conn, key string) {
	delete(c.subscribed, key)
	n.subs[key] = slices.DeleteFunc(n.subs[key], func(other *conn) bool { return other == c })
	if len(n.subs[key]) == 0 {
		delete(n.subs, key)
	}
}

// publish sends a message to the subscribers of a channel. Some may miss it.
func (n *node) publish(command, channel, message string) int {
	kind, key := "message", subKey(command == "SPUBLISH", channel)
	if command == "SPUBLISH" {
		kind = "smessage"
	}
	for _, c := range n.subs[key] {
		if n.world.dropsMessage(c) {
			n.world.note("network", "%s: a message on %s is lost", c.name, channel)
			continue
		}
		c.answer(memredis.AppendReply(nil, []any{kind, channel, message}))
	}
	return len(n.subs[key])
}

// drop closes the server's end of a connection.
func (n *node) drop(c *conn) {
	if c.dropped {
		return
	}
	c.dropped = true
	n.conns = slices.DeleteFunc(n.conns, func(other *conn) bool { return other == c })
	for _, key := range sortedKeys(c.subscribed) {
		n.unsubscribe(c, key)
	}
}

// crash stops the server and cuts its connections, with the packets in them.
func (n *node) crash() {
	n.down = true
	n.loaded = make(map[string]string)
	for _, c := range slices.Clone(n.conns) {
		c.cut()
	}
}

// restart starts the server again with the given data.
func (n *node) restart(data *memredis.DB, loads time.Duration) {
	n.tick()
	data.Now = n.db.Now
	for _, key := range n.db.Keys() {
		if n.db.Describe(key) != data.Describe(key) {
			n.world.oracle.damage(key)
		}
	}
	for _, key := range data.Keys() {
		now := n.db.Elements(key)
		if now == nil {
			n.world.oracle.damage(key)
		}
		n.world.oracle.restore(key, now, data.Elements(key))
	}
	n.db = data
	for _, l := range n.world.cfg.names {
		if l.kind == "semaphore" {
			n.world.oracle.noteGrants(l.name)
		}
	}
	n.down, n.loadingUntil, n.refusesUntil = false, n.world.now()+loads, 0
}

// evict deletes a key, as an operator or an eviction policy does.
func (n *node) evict(key string) {
	n.db.Delete(key)
	n.world.oracle.damage(key)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
