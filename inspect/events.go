package inspect

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// writePatience is how long a client may take to read one update.
const writePatience = 10 * time.Second

// events sends the page's content again and again, as server-sent events. It ends when the client
// leaves or the server shuts down.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	h.endWith(r)
	w.Header().Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	tick := time.NewTicker(h.opts.Refresh)
	defer tick.Stop()
	for {
		var content bytes.Buffer
		if err := pages.ExecuteTemplate(&content, "content", h.current(r.Context())); err != nil {
			h.opts.Logger.Warn("reqlock: inspect: the page was not written", "error", err)
			return
		}
		// The server's WriteTimeout would end the stream. A writer without deadlines has none either.
		_ = stream.SetWriteDeadline(time.Now().Add(writePatience))
		event := "data: " + strings.ReplaceAll(content.String(), "\n", "\ndata: ") + "\n\n"
		if _, err := w.Write([]byte(event)); err != nil {
			return
		}
		if err := stream.Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-h.stopping:
			return
		}
	}
}

// endWith makes the shutdown of the request's server end the streams. It would wait for them.
func (h *handler) endWith(r *http.Request) {
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return
	}
	if _, known := h.servers.LoadOrStore(srv, true); !known {
		srv.RegisterOnShutdown(func() { h.stopOnce.Do(func() { close(h.stopping) }) })
	}
}
