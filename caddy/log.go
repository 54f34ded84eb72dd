package caddylock

import (
	"context"
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// newLogger returns a logger for what outlives a configuration. Caddy closes the logs of a
// configuration with it, so each record goes to the log of the configuration that runs then.
func newLogger() *slog.Logger { return slog.New(currentLog{}) }

type currentLog struct {
	// prepare adds the attributes and groups of the logger; nil: there are none.
	prepare func(slog.Handler) slog.Handler
}

func (l currentLog) handler() slog.Handler {
	// zapslog would add a stack to each error.
	h := slog.Handler(zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName("reqlock"), zapslog.AddStacktraceAt(slog.LevelError+100)))
	if l.prepare != nil {
		h = l.prepare(h)
	}
	return h
}

func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

func (l currentLog) Handle(ctx context.Context, r slog.Record) error {
	return l.handler().Handle(ctx, r)
}

func (l currentLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return l.with(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (l currentLog) WithGroup(name string) slog.Handler {
	return l.with(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (l currentLog) with(next func(slog.Handler) slog.Handler) slog.Handler {
	if before := l.prepare; before != nil {
		return currentLog{func(h slog.Handler) slog.Handler { return next(before(h)) }}
	}
	return currentLog{next}
}
