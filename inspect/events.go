package inspect

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// writePatience is how long a client may take to read the page, or one update.
const writePatience = 10 * time.Second

// lineEnds begins a field of the event in each line. A name may contain any of the ends of a line
// that the format has. In HTML all of them are alike.
var lineEnds = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

// events sends the page's content again and again, as server-sent events. It ends when the client
// leaves or the server shuts down. HEAD gets the header alone.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	stream := http.NewResponseController(w)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		v, ok := h.current(w, r)
		if !ok {
			return
		}
		content, err := v.content()
		if err != nil {
			h.notWritten("page was", err)
			return
		}
		event := "data: " + lineEnds.Replace(content) + "\n\n"
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		if err := stream.Flush(); err != nil {
			return
		}
		// Over HTTP/2, a deadline that passes resets the stream even if nothing is written.
		_ = stream.SetWriteDeadline(time.Time{})
		next.Reset(time.Until(v.At.Add(h.opts.Refresh)))
		select {
		case <-next.C:
		case <-r.Context().Done():
			return
		case <-h.stopping(r):
			return
		}
	}
}

// stopping returns a channel that is closed when the request's server begins to shut down, which
// would wait for the request.
func (h *handler) stopping(r *http.Request) <-chan struct{} {
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return nil
	}
	stopping, known := h.servers.LoadOrStore(srv, make(chan struct{}))
	if !known {
		srv.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping.(chan struct{})) }))
	}
	return stopping.(chan struct{})
}
