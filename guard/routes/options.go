package routes

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/reqlock/reqlock/guard"
	"github.com/reqlock/reqlock/keyfuncs"
)

// Options has what a file cannot say. The zero value reads JSON, once.
type Options struct {
	// Format parses the file. nil: JSON. yaml.Format of package routes/yaml reads YAML.
	Format Format
	// Watch loads the file again about a second after it changed. false: only Reload and ReloadOn
	// do.
	Watch bool
	// ReloadOn are signals on which the file is loaded again, such as syscall.SIGHUP.
	ReloadOn []os.Signal

	// Sources are names for templates, in addition to those of keyfuncs.Template: with "user" among
	// them, {user} is that Func. They are how a file uses what the program knows, such as the
	// authenticated user.
	Sources map[string]keyfuncs.Func
	// OpenPlugin opens the WebAssembly plugin of a path, such as by wasm.Open. A plugin that stays in
	// the file stays open when that is loaded again. nil: a file must not have plugins.
	OpenPlugin func(path string) (Plugin, error)

	// ErrorHandler, Logger and Observe are those of guard.Config, for all routes. The Logger also
	// gets the result of loading the file again.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	Logger       *slog.Logger
	Observe      func(r *http.Request, o guard.Outcome)

	// interval is how often Watch checks the file. 0: watch.Interval.
	interval time.Duration
}

// A Plugin decides for a Route; *wasm.Plugin is one.
type Plugin interface {
	Policy(r *http.Request, p *guard.Policy) error
	Close(ctx context.Context) error
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}
