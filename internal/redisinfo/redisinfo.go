// Package redisinfo reads what a Redis server says about itself, and says what of that puts locks
// at risk.
package redisinfo

import (
	"fmt"
	"strconv"
	"strings"
)

// An Info has the fields of INFO.
type Info map[string]string

// Parse reads the reply to INFO.
func Parse(text string) Info {
	fields := make(Info)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		} else if strings.EqualFold(line, "# KeyDB") {
			fields[keyDB] = "yes"
		}
	}
	return fields
}

// keyDB is a field that is set for KeyDB, which has a section of its own.
const keyDB = "# KeyDB"

// Number returns a field as a number; 0: it has none.
func (i Info) Number(field string) int64 {
	n, _ := strconv.ParseInt(i[field], 10, 64)
	return n
}

// Server returns the name and the version of the server, such as Redis 7.0.15.
func (i Info) Server() string {
	redis := i["redis_version"]
	switch valkey, dragonfly := i["valkey_version"], i["dragonfly_version"]; {
	case valkey != "":
		return fmt.Sprintf("Valkey %s, compatible with Redis %s", valkey, redis)
	case dragonfly != "":
		return fmt.Sprintf("Dragonfly %s, compatible with Redis %s", strings.TrimPrefix(dragonfly, "df-"), redis)
	case i[keyDB] != "":
		return "KeyDB " + redis
	case redis != "":
		return "Redis " + redis
	}
	return "a server of an unknown version"
}

// A Risk is a setting with which locks may be lost.
type Risk struct {
	Finding string
	Change  string // what to do
	// Serious means that it can happen with these settings. Otherwise it needs another event, such
	// as a crash or a change of another setting.
	Serious bool
}

// Eviction returns the risk that the server evicts keys of locks; nil: none, or INFO does not say.
func (i Info) Eviction() *Risk {
	policy := i["maxmemory_policy"]
	if policy == "" || policy == "noeviction" {
		return nil
	}
	r := &Risk{Change: "CONFIG SET maxmemory-policy noeviction, or use a Redis of its own for locks"}
	switch {
	case i.Number("maxmemory") == 0:
		r.Finding = "maxmemory-policy " + policy + "; it has no effect as long as maxmemory is 0"
	case strings.HasPrefix(policy, "allkeys-"):
		r.Serious = true
		r.Finding = "maxmemory-policy " + policy + " may evict locks that are held, and then two owners hold them;" +
			" it may evict the counters of fencing tokens first, and then tokens start again at 1"
	default:
		r.Serious = true
		r.Finding = "maxmemory-policy " + policy + " may evict locks that are held, and then two owners hold them"
	}
	return r
}

// Persistence returns the risk that a restart of the server forgets locks; nil: none, or INFO does
// not say.
func (i Info) Persistence() *Risk {
	if enabled, known := i["aof_enabled"]; !known || enabled == "1" {
		return nil
	}
	return &Risk{
		Finding: "no append-only file: a restart forgets locks that are held, and fencing tokens start again at a lower number",
		Change:  "CONFIG SET appendonly yes, unless a lock that is lost with its server does no harm and no lock is fenced",
	}
}
