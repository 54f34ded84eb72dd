package routes

import "slices"

// A Table is the content of a file.
type Table struct {
	Routes []Route `json:"routes"`
}

// A Route is one row: how the requests of a route are guarded. They take a lock if it has Keys or a
// Plugin, are idempotent if it has Idempotency, and share the answer of one run if it has Coalesce.
// The last two are around the lock: a replay and a shared answer take none. docs/guides/config.md
// describes the fields.
type Route struct {
	Place `json:"-"`
	wrong bool // A field has a mistake.

	Method  string `json:"method,omitempty"` // "": all; GET counts for HEAD as well
	Pattern string `json:"pattern"`
	// Keys are templates.
	Keys   []string `json:"keys,omitempty"`
	Plugin string   `json:"plugin,omitempty"`
	Mode   string   `json:"mode,omitempty"` // "": exclusive
	Fenced bool     `json:"fenced,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	// Delegates is "none", "together" or "one_at_a_time". "": none.
	Delegates string `json:"delegates,omitempty"`
	Lock
	BufferBody    int64        `json:"buffer_body,omitempty"`
	RetryAfter    Duration     `json:"retry_after,omitempty"`
	PassPreflight bool         `json:"pass_preflight,omitempty"`
	Idempotency   *Idempotency `json:"idempotency,omitempty"`
	Coalesce      *Coalesce    `json:"coalesce,omitempty"`
}

// Lock is how requests wait for a lock and hold it. The fields mean what those of guard.Config do.
type Lock struct {
	Wait       Duration `json:"wait,omitempty"`
	Lease      Duration `json:"lease,omitempty"`
	MaxHold    Duration `json:"max_hold,omitempty"`
	MaxWaiters int      `json:"max_waiters,omitempty"`
	FailOpen   bool     `json:"fail_open,omitempty"`
}

// Idempotency says how to recognize and answer repeats of a request. The fields mean what those of
// idempotency.Config do.
type Idempotency struct {
	Place `json:"-"`

	Scope    string   `json:"scope"` // a template, or "global"
	Route    string   `json:"route,omitempty"`
	Header   string   `json:"header,omitempty"`
	Optional bool     `json:"optional,omitempty"`
	Strict   bool     `json:"strict,omitempty"`
	KeyUUID  bool     `json:"key_uuid,omitempty"`
	Methods  []string `json:"methods,omitempty"`
	TTL      Duration `json:"ttl,omitempty"`
	ErrorTTL Duration `json:"error_ttl,omitempty"`
	MaxKeys  int      `json:"max_keys,omitempty"`
	Lock
	OnUnknown       string `json:"on_unknown,omitempty"` // "": rerun
	MaxRequestBody  int64  `json:"max_request_body,omitempty"`
	MaxResponseBody int64  `json:"max_response_body,omitempty"`
}

// Coalesce says which requests share the answer of one run. The fields mean what those of
// coalesce.Config do.
type Coalesce struct {
	Place `json:"-"`

	Key        string   `json:"key,omitempty"` // a template; "": the host, the path and the query
	Plugin     string   `json:"plugin,omitempty"`
	User       string   `json:"user,omitempty"` // a template, or "everyone"
	Vary       []string `json:"vary,omitempty"`
	Unsafe     string   `json:"unsafe,omitempty"`
	Wait       Duration `json:"wait,omitempty"`
	Lease      Duration `json:"lease,omitempty"`
	MaxWaiters int      `json:"max_waiters,omitempty"`
	Keep       Duration `json:"keep,omitempty"`
	ErrorFor   Duration `json:"error_for,omitempty"` // negative: errors are not shared
	Stale      Duration `json:"stale,omitempty"`
	MaxAnswer  int64    `json:"max_answer,omitempty"`
	Limit      int      `json:"limit,omitempty"`
	Unmarked   bool     `json:"unmarked,omitempty"`
	FailOpen   bool     `json:"fail_open,omitempty"`
}

// UserEveryone is the User of requests whose answers do not depend on who asks.
const UserEveryone = "everyone"

// ScopeGlobal is the Scope of callers that share their keys.
const ScopeGlobal = "global"

// The fields of each object, from which the parser and the JSON Schema are made.
var (
	tableFields = []field[Table]{
		{name: "$schema", about: "The address of this schema, for editors.", schema: schemaOf("string"), read: func(*Table, *Node) []*Error { return nil }},
		{name: "routes", about: "The routes. A request of any other route passes.", required: true,
			schema: map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/route"}},
			read:   readRoutes},
	}
	routeFields = slices.Concat([]field[Route]{
		of("method", "The method. Default: all methods. GET counts for HEAD as well.", method, func(r *Route) *string { return &r.Method }),
		of("pattern", "The route's pattern as the framework has it, such as /orders/{id}/pay or /orders/:id/pay. The names of wildcards do not matter, except to {path.NAME}.",
			text, func(r *Route) *string { return &r.Pattern }).must(),
		{name: "key", about: "The key: a text with sources, such as order:{path.id}.", schema: schemaOf("string"), read: readKey},
		{name: "keys", about: "Several keys. A request gets the locks of all or none.", schema: texts.schema, read: readKeys},
		of("plugin", "A WebAssembly plugin that decides on keys, mode, tokens, limit and times, in place of key, mode, fenced and limit. Its path is relative to this file.", text, func(r *Route) *string { return &r.Plugin }),
		of("mode", "The kind of lock. read_write: GET and HEAD read, the rest writes. Default: exclusive.", oneOf(modeNames...), func(r *Route) *string { return &r.Mode }),
		of("fenced", "Give each holder a fencing token, beside any mode but read. It needs a single key. With read_write, only writers have tokens.", boolean,
			func(r *Route) *bool { return &r.Fenced }),
		of("limit", "Let up to this many requests with the same key in at a time, at least 2, in place of one under a lock. It does not go with mode and fenced. Default: 0, a lock.",
			limit, func(r *Route) *int { return &r.Limit }),
		of("delegates", "Whether a request with a token enters the lock of its caller as a guest: together with other guests, or one_at_a_time. Default: none.",
			oneOf(guestNames...), func(r *Route) *string { return &r.Delegates }),
		of("buffer_body", "Read up to this many bytes of the body before acquiring the lock. Default: 0, off.", bytesOf, func(r *Route) *int64 { return &r.BufferBody }),
		of("retry_after", "The Retry-After of refusals. Default: 1s.", duration, func(r *Route) *Duration { return &r.RetryAfter }),
		of("pass_preflight", "Run the handler of a CORS preflight without a lock.", boolean, func(r *Route) *bool { return &r.PassPreflight }),
		{name: "idempotency", about: "Run each request once for its idempotency key, and repeat the answer.",
			schema: map[string]any{"$ref": "#/$defs/idempotency"}, read: readIdempotency},
		{name: "coalesce", about: "Run once for all requests that want the same at the same time, and give each of them the answer.",
			schema: map[string]any{"$ref": "#/$defs/coalesce"}, read: readCoalesce},
	}, lockFields(func(r *Route) *Lock { return &r.Lock }))
	idempotencyFields = slices.Concat([]field[Idempotency]{
		of("scope", "Whose keys they are: a text with sources, such as {user}, or global if all callers share their keys.", text, func(i *Idempotency) *string { return &i.Scope }).must(),
		of("route", "The name of the route in records. Default: its pattern.", text, func(i *Idempotency) *string { return &i.Route }),
		of("header", "The header with the key. Default: Idempotency-Key.", text, func(i *Idempotency) *string { return &i.Header }),
		of("optional", "Run requests without the header unguarded.", boolean, func(i *Idempotency) *bool { return &i.Optional }),
		of("strict", "Accept only quoted keys, as in RFC 9651.", boolean, func(i *Idempotency) *bool { return &i.Strict }),
		of("key_uuid", "Accept only UUIDs as keys. All spellings of one are one key.", boolean, func(i *Idempotency) *bool { return &i.KeyUUID }),
		of("methods", "The methods; all others pass. Default: the method of the route, or POST and PATCH if it has none.", methods, func(i *Idempotency) *[]string { return &i.Methods }),
		of("ttl", "How long a result is kept. Default: 24h.", duration, func(i *Idempotency) *Duration { return &i.TTL }),
		of("error_ttl", "How long an answer of 400 to 499 is kept. Default: 10m, or ttl if that is shorter.", duration, func(i *Idempotency) *Duration { return &i.ErrorTTL }),
		of("max_keys", "How many keys one scope may use within ttl. Default: 0, no bound.", number, func(i *Idempotency) *int { return &i.MaxKeys }),
		of("on_unknown", "What a repeat gets if the first run ended without a result. Default: rerun.", oneOf(unknownNames...), func(i *Idempotency) *string { return &i.OnUnknown }),
		of("max_request_body", "The largest body, in bytes. Default: 1048576.", bytesOf, func(i *Idempotency) *int64 { return &i.MaxRequestBody }),
		of("max_response_body", "The largest answer that is recorded, in bytes. Default: 1048576.", bytesOf, func(i *Idempotency) *int64 { return &i.MaxResponseBody }),
	}, lockFields(func(i *Idempotency) *Lock { return &i.Lock }))
	coalesceFields = []field[Coalesce]{
		of("key", "What a request asks for: a text with sources, such as report:{path.id}. It must name all that the answer depends on, beside the method, user and vary. Default: the host, the path and the query.",
			text, func(c *Coalesce) *string { return &c.Key }),
		of("plugin", "A WebAssembly plugin that decides on the key, wait and lease, in place of key. Its path is relative to this file.", text, func(c *Coalesce) *string { return &c.Plugin }),
		of("user", "Who asks: a text with sources, such as {user}, or everyone if answers do not depend on it. Default: requests with Authorization or Cookie get a shared answer only if it says Cache-Control: public, or if vary has the header.",
			text, func(c *Coalesce) *string { return &c.User }),
		of("vary", "The request headers that answers depend on, such as Accept-Language. An answer whose Vary has another one is not shared.", headers, func(c *Coalesce) *[]string { return &c.Vary }),
		of("unsafe", "Why methods other than GET and HEAD may share, such as: the POST is a query. Then all do, and key or plugin must be set. Default: they run.", text, func(c *Coalesce) *string { return &c.Unsafe }),
		of("wait", "How long a request waits for the answer of another, at least 1ms. Default: 30s.", patience, func(c *Coalesce) *Duration { return &c.Wait }),
		of("lease", "How long a run lasts at most, at least 1ms. Default: 0, which renews the lock for as long as it runs.", lease, func(c *Coalesce) *Duration { return &c.Lease }),
		of("max_waiters", "How many requests of this process may wait for one answer. Default: 0, which means 1024; -1: no bound.", waiters, func(c *Coalesce) *int { return &c.MaxWaiters }),
		of("keep", "How long requests that come after a run still get its answer, 1ms to 1h. Default: 2s.", keep, func(c *Coalesce) *Duration { return &c.Keep }),
		of("error_for", "The same for answers from 500 on; -1: they are not shared. Default: 1s.", orOff(keep, wantErrorFor), func(c *Coalesce) *Duration { return &c.ErrorFor }),
		of("stale", "How long after keep requests still get the old answer, while one of them runs for the new one, 1ms to 1h. It needs keep. Default: 0, none.", stale, func(c *Coalesce) *Duration { return &c.Stale }),
		of("max_answer", "The largest body of an answer that is shared, in bytes. Default: 1048576.", bytesOf, func(c *Coalesce) *int64 { return &c.MaxAnswer }),
		of("limit", "How many requests run at a time in all processes if answers are not shared. Default: 0, no bound.", number, func(c *Coalesce) *int { return &c.Limit }),
		of("unmarked", "Leave out the header Reqlock-Shared: 1 of shared answers.", boolean, func(c *Coalesce) *bool { return &c.Unmarked }),
		of("fail_open", "Run each request for itself if Redis is unavailable.", boolean, func(c *Coalesce) *bool { return &c.FailOpen }),
	}
)

func lockFields[T any](lock func(*T) *Lock) []field[T] {
	return []field[T]{
		of("wait", "How long a request waits for a held lock. Default: 0, which answers 409 at once.", duration, func(t *T) *Duration { return &lock(t).Wait }),
		of("lease", "How long a lock is held at most, at least 1ms. Default: 0, which renews it for as long as the handler runs.", lease, func(t *T) *Duration { return &lock(t).Lease }),
		of("max_hold", "How long a handler may hold the lock. Default: 0, no bound.", duration, func(t *T) *Duration { return &lock(t).MaxHold }),
		of("max_waiters", "How many requests of this process may wait for one lock. Default: 0, which means 1024; -1: no bound.", waiters, func(t *T) *int { return &lock(t).MaxWaiters }),
		of("fail_open", "Run the handler without a lock if Redis is unavailable.", boolean, func(t *T) *bool { return &lock(t).FailOpen }),
	}
}

func readRoutes(t *Table, n *Node) (mistakes []*Error) {
	if n.Kind != List {
		return []*Error{wrongKind("routes", n, "a list of routes")}
	}
	for _, item := range n.Items {
		route := Route{Place: item.Place}
		wrong := readObject("a route", routeFields, &route, item)
		route.wrong = len(wrong) > 0
		mistakes = append(mistakes, wrong...)
		t.Routes = append(t.Routes, route)
	}
	return mistakes
}

// readKey reads the short form of keys.
func readKey(r *Route, n *Node) []*Error {
	key, mistake := text.read("key", n)
	return r.addKeys(n, mistake, key)
}

func readKeys(r *Route, n *Node) []*Error {
	keys, mistake := texts.read("keys", n)
	return r.addKeys(n, mistake, keys...)
}

func (r *Route) addKeys(n *Node, mistake *Error, keys ...string) []*Error {
	switch {
	case mistake != nil:
		return []*Error{mistake}
	case len(r.Keys) > 0:
		return []*Error{errorAt(n.Place, "the route has both key and keys; put all keys into keys")}
	}
	r.Keys = keys
	return nil
}

func readIdempotency(r *Route, n *Node) []*Error {
	r.Idempotency = &Idempotency{Place: n.Place}
	return readObject("idempotency", idempotencyFields, r.Idempotency, n)
}

func readCoalesce(r *Route, n *Node) []*Error {
	r.Coalesce = &Coalesce{Place: n.Place}
	return readObject("coalesce", coalesceFields, r.Coalesce, n)
}
