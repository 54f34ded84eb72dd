package caddylock

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/inspect"
)

func init() { caddy.RegisterModule(admin{}) }

// admin lists the locks on the Redis of the app at the admin endpoint.
type admin struct{}

// CaddyModule returns the Caddy module information.
func (admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.reqlock", New: func() caddy.Module { return admin{} }}
}

// Routes returns GET /reqlock/locks, with the parameter prefix. It answers with an inspect.Listing.
func (admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/reqlock/locks", Handler: caddy.AdminHandlerFunc(listLocks)}}
}

func listLocks(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errors.New("use GET")}
	}
	all := inspect.Listing{Locks: []inspect.Lock{}}
	for _, c := range openConnections() {
		locks, more, err := inspect.List(r.Context(), c.rdb, inspect.ListOptions{Prefix: r.URL.Query().Get("prefix")})
		switch {
		case errors.Is(err, redis.ErrClosed): // a reload has dropped the connection meanwhile
			continue
		case err != nil:
			return caddy.APIError{HTTPStatus: http.StatusBadGateway, Err: err}
		}
		c.addOwn(locks)
		all.Locks, all.Truncated = append(all.Locks, locks...), all.Truncated || more
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(all)
}

// openConnections returns the connections of now. Range keeps the pool from every reload, so nothing
// may ask Redis in it.
func openConnections() (list []*connection) {
	connections.Range(func(_, value any) bool {
		if c, ok := value.(*connection); ok { // else it is still being made
			list = append(list, c)
		}
		return true
	})
	return list
}

// addOwn adds what only this process knows about its holds.
func (c *connection) addOwn(locks []inspect.Lock) {
	type place struct{ name, owner string }
	own := make(map[place]core.Hold)
	for _, hold := range c.locks.Holds() {
		own[place{hold.Key, hold.Owner}] = hold
	}
	for _, lock := range locks {
		for i := range lock.Holders {
			holder := &lock.Holders[i]
			hold := own[place{lock.Name, strings.TrimSuffix(holder.Owner, ":write")}]
			holder.Held, holder.Route, holder.RequestID = hold.Held.Milliseconds(), hold.Route, hold.RequestID
		}
	}
}

var _ caddy.AdminRouter = admin{}
