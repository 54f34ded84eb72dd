package fiberlock_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/idempotency"
	"github.com/reqlock/reqlock/internal/lab/locktest"
	"github.com/reqlock/reqlock/keyfuncs"
	fiberlock "github.com/reqlock/reqlock/middleware/fiber"
)

// The keys of keyfuncs.Path are equal for all paths that Fiber takes for one, and differ for all
// others: it takes those for one that reach the same route with the same values.
func TestPath_AsFiberReadsIt(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	for name, cfg := range map[string]fiber.Config{
		"default":                      {},
		"CaseSensitive":                {CaseSensitive: true},
		"StrictRouting":                {StrictRouting: true},
		"CaseSensitive, StrictRouting": {CaseSensitive: true, StrictRouting: true},
		"UnescapePath":                 {UnescapePath: true},
		"all":                          {CaseSensitive: true, StrictRouting: true, UnescapePath: true},
	} {
		app := fiber.New(cfg)
		for _, pattern := range []string{
			"/", "/about/", "/Orders/:id/Pay", "/opt/:id?", "/from/:a-:b.json", "/n/:id<int>/x", `/name\:verb/:id`,
			"/files/*", "/two/*/and/*", "/plus/+", "/strict/:id", "/strict/:id/",
		} {
			app.Get(pattern, fiberlock.New(locks, quiet(keyfuncs.Path())), func(c fiber.Ctx) error {
				read := c.Route().Path
				for _, param := range c.Route().Params {
					read += fmt.Sprintf(" %q", c.Params(param))
				}
				c.Set("X-Read", read)
				return answerLock(c)
			})
		}
		s := newAppServer(t, app)
		keyOf, readOf := map[string]string{}, map[string]string{}
		answered := 0
		for _, path := range []string{
			"/", "/about", "/about/", "/ABOUT", "/orders/42/pay", "/Orders/42/Pay", "/ORDERS/42/PAY/", "/Orders/42/Pay/", "/orders/42/pay//",
			"/orders/a/pay", "/Orders/a/Pay", "/Orders/A/Pay", "/Orders/A/Pay/", "/Orders/orders/Pay", "/Orders/pay/Pay", "/Orders/a+b/Pay",
			"/Orders/a%20b/Pay", "/Orders/%61/Pay", "/opt", "/opt/", "/OPT", "/opt/x", "/opt/x/", "/opt/X", "/from/a-b.json", "/From/a-b.JSON",
			"/from/A-b.json", "/n/1/x", "/N/1/X/", "/name:verb/1", "/Name:Verb/1", "/files/", "/files/a", "/files/a/", "/Files/a", "/files/A",
			"/files/a/b", "/two/a/and/b", "/TWO/a/AND/b", "/two/A/and/b", "/plus/a/b", "/Plus/a/b/", "/plus/A/b", "/strict/1", "/strict/1/",
		} {
			a := s.Do(s.NewRequest("GET", path, ""))
			if a.Status == 404 {
				continue
			}
			if a.Status != 200 {
				t.Errorf("%s: %s: %v", name, path, a)
				continue
			}
			answered++
			read := a.Header.Get("X-Read")
			read = strings.ReplaceAll(read, `"%61"`, `"a"`) // Path decodes what the handler gets encoded
			read = strings.ReplaceAll(read, `"a%20b"`, `"a b"`)
			if key, ok := keyOf[read]; ok && key != a.Body {
				t.Errorf("%s: %s is read as %s, and has the keys %q and %q", name, path, read, key, a.Body)
			}
			if other, ok := readOf[a.Body]; ok && other != read {
				t.Errorf("%s: %s and %s have the key %q", name, read, other, a.Body)
			}
			keyOf[read], readOf[a.Body] = a.Body, read
		}
		if answered < 20 {
			t.Errorf("%s: %d paths were answered", name, answered)
		}
	}
}

// In App.Use the route that will answer is unknown, and so is what Fiber ignores in the path.
func TestPath_InUse(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	mount := func(cfg fiber.Config) *locktest.Server {
		app := fiber.New(cfg)
		app.Use(fiberlock.New(locks, quiet(keyfuncs.Path())))
		app.Get("/orders/:id", answerLock)
		return newAppServer(t, app)
	}
	mount(fiber.Config{}).Want("GET", "/Orders/1", 500, "misconfigured")
	mount(fiber.Config{CaseSensitive: true}).Want("GET", "/orders/1", 500, "misconfigured")
	mount(fiber.Config{CaseSensitive: true, StrictRouting: true}).Want("GET", "/orders/1", 200, "reqlock:/orders/1")

	app := fiber.New()
	cfg := quiet(keyfuncs.Const("outer"))
	app.Use(fiberlock.New(locks, cfg))
	app.Get("/orders/:id", fiberlock.New(locks, quiet(keyfuncs.Path())), answerLock)
	newAppServer(t, app).Want("GET", "/Orders/a/", 200, "reqlock:/orders/a")
}

// A path that middleware has set is the one that Fiber routes.
func TestPath_Rewritten(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		if rest, ok := strings.CutPrefix(c.Path(), "/v1"); ok {
			c.Path(rest)
		}
		return c.Next()
	})
	app.Get("/orders/:id", fiberlock.New(locks, quiet(keyfuncs.Path())), answerLock)
	s := newAppServer(t, app)
	s.Want("GET", "/v1/orders/1", 200, "reqlock:/orders/1")
	s.Want("GET", "/orders/1", 200, "reqlock:/orders/1")
}

// A repeat may spell the path in another way, if Fiber takes it for the same one.
func TestIdempotent_Spellings(t *testing.T) {
	t.Parallel()
	locks := locktest.NewLocks(t)
	app := fiber.New()
	once := fiberlock.Idempotent(locks, idempotency.Config{Scope: idempotency.ScopeGlobal, Logger: slog.New(slog.DiscardHandler)})
	app.Post("/orders/:id/pay", once, func(c fiber.Ctx) error { return c.Status(201).SendString(c.Params("id")) })
	s := newAppServer(t, app)
	if a := s.PostWithKey("/orders/a/pay", "k"); a.Status != http.StatusCreated || a.Replayed() {
		t.Errorf("the first request: %v", a)
	}
	for _, path := range []string{"/orders/a/pay/", "/Orders/a/PAY"} {
		if a := s.PostWithKey(path, "k"); a.Status != http.StatusCreated || !a.Replayed() {
			t.Errorf("%s: %v, want the first answer", path, a)
		}
	}
	if a := s.PostWithKey("/orders/A/pay", "k"); a.Status != http.StatusUnprocessableEntity {
		t.Errorf("another order: %v, want 422", a)
	}
}
