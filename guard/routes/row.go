package routes

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/internal/pattern"
	"github.com/reqlock/reqlock/keyfuncs"
)

// A Row is a Route that is ready for use.
type Row struct {
	Route
	Guard  *guard.Config // nil: the route takes no lock
	Once   *Once         // nil: the route is not idempotent
	Shared *Shared       // nil: each request runs for itself
}

// Once is a Route's Idempotency that is ready for use. Package idempotency makes its Config of it.
type Once struct {
	Idempotency
	ScopeOf      keyfuncs.Func // nil: all callers share their keys
	ErrorHandler func(http.ResponseWriter, *http.Request, error)
	Logger       *slog.Logger
	Observe      func(*http.Request, guard.Outcome)
}

// Shared is a Route's Coalesce that is ready for use. Package coalesce makes its Config of it.
type Shared struct {
	Coalesce
	KeyOf        keyfuncs.Func    // nil: the host, the path and the query
	UserOf       keyfuncs.Func    // nil: nothing says who asks, or User is UserEveryone
	Policy       guard.PolicyFunc // nil: there is no Plugin, or Parse has not opened it
	ErrorHandler func(http.ResponseWriter, *http.Request, error)
	Logger       *slog.Logger
	Observe      func(*http.Request, guard.Outcome)
}

// Parse parses a file. file names it in errors. It reports all mistakes, joined, each an *Error. It
// opens no plugin: the Policy of Row.Guard and of Row.Shared is nil.
func Parse(file string, src []byte, opts Options) ([]Row, error) {
	format := opts.Format
	if format == nil {
		format = JSON
	}
	node, err := format(src)
	if err != nil {
		var mistake *Error
		if errors.As(err, &mistake) {
			mistake.File = file
			if ext := strings.ToLower(filepath.Ext(file)); opts.Format == nil && (ext == ".yaml" || ext == ".yml") {
				mistake.Text += "; for YAML, set Options.Format to yaml.Format of package guard/routes/yaml"
			}
		}
		return nil, err
	}
	table := &Table{}
	mistakes := readObject("the file", tableFields, table, node)
	rows, wrong := rowsOf(table, opts)
	var all []error
	for _, mistake := range sorted(append(mistakes, wrong...)) {
		mistake.File = file
		all = append(all, mistake)
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	return rows, nil
}

func rowsOf(table *Table, opts Options) (rows []Row, mistakes []*Error) {
	seen := make(map[string]Place)
	for _, route := range table.Routes {
		row, wrong := rowOf(route, opts)
		rows, mistakes = append(rows, row), append(mistakes, wrong...)
		if route.wrong {
			continue
		}
		name := route.Method + " " + canonical(route.Pattern)
		if before, twice := seen[name]; twice {
			mistakes = append(mistakes, errorAt(route.Place, "%q is in the table already, in line %d; a route has one row", route.name(), before.Line))
		}
		seen[name] = route.Place
	}
	return rows, mistakes
}

func rowOf(route Route, opts Options) (Row, []*Error) {
	row := Row{Route: route}
	var mistakes []*Error
	refuse := func(wrong bool, at Place, format string, args ...any) {
		if wrong {
			mistakes = append(mistakes, errorAt(at, format, args...))
		}
	}
	locked := len(route.Keys) > 0 || route.Plugin != ""
	refuse(strings.ContainsAny(route.Pattern, " \t"), route.Place, "pattern is %q; put the method into method", route.Pattern)
	refuse(route.Pattern != "" && !strings.Contains(route.Pattern, "/"), route.Place, "pattern is %q; want a path that begins with a slash, such as /orders/{id}", route.Pattern)
	var keys []keyfuncs.Func
	for _, key := range route.Keys {
		f, err := template(key, route.Pattern, opts.Sources)
		refuse(err != nil && route.Pattern != "", route.Place, "%v", err)
		keys = append(keys, f)
	}
	if route.wrong { // more that looks wrong may follow from that
		return row, mistakes
	}
	refuse(!locked && route.Idempotency == nil && route.Coalesce == nil, route.Place,
		"the route has neither key nor keys nor plugin nor idempotency nor coalesce; want one, such as \"key\": \"order:{path.id}\"")
	refuse(len(route.Keys) > 0 && route.Plugin != "", route.Place, "the route has both keys and a plugin; a plugin decides on the keys")
	refuse(route.Mode != "" && len(route.Keys) == 0, route.Place, "the route has a mode, and no key that it is for")
	refuse(route.Fenced && len(route.Keys) == 0, route.Place, "the route is fenced, and has no key that it is for")
	refuse(route.Limit != 0 && len(route.Keys) == 0, route.Place, "the route has a limit, and no key that it is for")
	refuse(!locked && (route.Lock != Lock{} || route.BufferBody != 0 || route.RetryAfter != 0 || route.PassPreflight || route.Delegates != ""), route.Place,
		"the route has settings of a lock, and no key; put those of idempotency into idempotency, and those of coalesce into coalesce")
	refuse(route.Idempotency != nil && route.Coalesce != nil, route.Place,
		"the route has both idempotency and coalesce; keep idempotency if a request must have its effect only once, and coalesce if it only reads")
	if locked {
		cfg, err := route.Guard(opts)
		refuse(err != nil, route.Place, "%v", err)
		cfg.Keys = keys
		row.Guard = &cfg
	}
	if route.Idempotency != nil {
		row.Once = &Once{Idempotency: *route.Idempotency, ErrorHandler: opts.ErrorHandler, Logger: opts.Logger, Observe: opts.Observe}
		var err error
		row.Once.ScopeOf, err = ParseScope(route.Idempotency.Scope, "{user}", func(text string) (keyfuncs.Func, error) { return template(text, route.Pattern, opts.Sources) })
		refuse(err != nil, route.Idempotency.Place, "%v", err)
		// idempotency.Guard passes all other methods, so none of the row's requests would be guarded.
		if route.Method != "" && row.Once.Methods == nil {
			row.Once.Methods = []string{route.Method}
		}
		refuse(route.Method != "" && !slices.Contains(row.Once.Methods, route.Method), route.Idempotency.Place,
			"methods is %s, and the route's method is %s; leave methods out, which means %s", strings.Join(row.Once.Methods, ", "), route.Method, route.Method)
	}
	if route.Coalesce != nil {
		shared, wrong := route.Coalesce.ready(route, opts)
		row.Shared, mistakes = shared, append(mistakes, wrong...)
	}
	return row, mistakes
}

// ready returns the Shared of a route.
func (c *Coalesce) ready(route Route, opts Options) (shared *Shared, mistakes []*Error) {
	shared = &Shared{Coalesce: *c, ErrorHandler: opts.ErrorHandler, Logger: opts.Logger, Observe: opts.Observe}
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			mistakes = append(mistakes, errorAt(c.Place, format, args...))
		}
	}
	parse := func(text string) (keyfuncs.Func, error) { return template(text, route.Pattern, opts.Sources) }
	var err error
	if c.Key != "" {
		shared.KeyOf, err = parse(c.Key)
		refuse(err != nil, "key: %v", err)
	}
	shared.UserOf, err = ParseUser(c.User, "{user}", parse)
	refuse(err != nil, "%v", err)
	refuse(c.Key != "" && c.Plugin != "", "coalesce has both key and plugin; a plugin decides on the key")
	refuse(c.Unsafe != "" && c.Key == "" && c.Plugin == "", "unsafe is set, and there is no key; with a body, the answer depends on more than the URL")
	refuse(c.Stale != 0 && c.Keep == 0, "stale is %s, and keep is not set; say with keep how long an answer is not stale", time.Duration(c.Stale))
	refuse(c.Unsafe == "" && route.Method != "" && route.Method != http.MethodGet && route.Method != http.MethodHead,
		"the route's method is %s, and only GET and HEAD share; if requests may share, say why in unsafe", route.Method)
	return shared, mistakes
}

// template parses a text with sources, those of Options.Sources among them. {path.NAME} must be a
// wildcard of the pattern.
func template(text, route string, sources map[string]keyfuncs.Func) (keyfuncs.Func, error) {
	return keyfuncs.ParseTemplateWith(text, func(name string) (keyfuncs.Func, error) {
		if source, ok := sources[name]; ok {
			return source, nil
		}
		wildcard, ok := strings.CutPrefix(name, "path.")
		if !ok {
			return nil, nil
		}
		_, path := pattern.Split(route)
		var names []string
		for w := range pattern.Wildcards(path) {
			if w.Name == wildcard || w.Short == wildcard {
				return nil, nil
			}
			names = append(names, w.Name)
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("the pattern %s has no wildcard", route)
		}
		return nil, fmt.Errorf("the pattern %s has no wildcard %q; it has %s", route, wildcard, strings.Join(names, ", "))
	})
}

// canonical returns a pattern in the form that is the same in every framework and for all names of
// wildcards: {} for one segment, {...} for the rest.
func canonical(route string) string {
	host, path := pattern.Split(route)
	var out strings.Builder
	out.WriteString(host)
	end := 0
	for w := range pattern.Wildcards(path) {
		out.WriteString(strings.ReplaceAll(path[end:w.Start], `\:`, ":"))
		wildcard := path[w.Start:w.End]
		if wildcard[0] == '*' || strings.HasSuffix(wildcard, "...}") || strings.HasSuffix(wildcard, ":.*}") || strings.HasSuffix(wildcard, ":.+}") {
			out.WriteString("{...}")
		} else {
			out.WriteString("{}")
		}
		end = w.End
	}
	out.WriteString(strings.ReplaceAll(path[end:], `\:`, ":"))
	return out.String()
}
