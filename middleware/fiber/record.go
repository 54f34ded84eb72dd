package fiberlock

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v3"
	"github.com/reqlock/reqlock/guard"
)

// A recorder records an answer: an idempotency.Recorder, or a coalesce.Recorder.
type recorder interface {
	Wrap(http.ResponseWriter) http.ResponseWriter
	Fits(length int64) bool
	Bypassed(status int)
	Failed()
}

// record runs next, and Fiber's answer to its error, and writes the answer to the recorder.
func record(w *writer, r *http.Request, rec recorder, next func(fiber.Ctx) error) error {
	c := w.c
	out := rec.Wrap(w)
	answer := c.Response()
	// With 200 and no body, Fiber's answer is as it was before the handler.
	untouched := func() bool {
		return answer.StatusCode() == http.StatusOK && !answer.IsBodyStream() && len(answer.Body()) == 0
	}
	if err := w.run(r, next); err != nil {
		err = c.App().ErrorHandler(c, err)
		if err != nil || untouched() {
			rec.Failed()
			return err
		}
	}
	if guard.Interruption(r.Context()) != nil && untouched() { // it was interrupted, and has answered nothing
		return nil
	}
	status := answer.StatusCode()
	w.skipsBody = w.skipsBody || answer.SkipBody
	body, length, ok := w.takeBody(rec)
	if !ok {
		rec.Bypassed(status)
		return nil
	}
	header := headerOf(c)
	for name, values := range w.header {
		if slices.Equal(header[name], values) {
			header[name] = values // the Recorder takes other values for the handler's
		}
	}
	clear(w.header)
	maps.Copy(w.header, header)
	if length > len(body) {
		w.header.Set("Content-Length", strconv.Itoa(length))
	}
	w.begun = false // run may have answered by w
	out.WriteHeader(status)
	if len(body) == 0 {
		return nil
	}
	_, err := out.Write(body)
	return err
}

// takeBody returns a copy of the body that fasthttp will send, and the Content-Length that it will
// send with it. false: it cannot be recorded, and is left to fasthttp.
func (w *writer) takeBody(rec recorder) (body []byte, length int, ok bool) {
	answer := w.c.Response()
	switch status := answer.StatusCode(); {
	case w.c.RequestCtx().Hijacked():
		return nil, 0, false
	case status == http.StatusNoContent, status == http.StatusNotModified:
		return nil, 0, true
	case answer.IsBodyStream():
		length = answer.Header.ContentLength()
	case w.skipsBody && len(answer.Body()) == 0:
		length = max(answer.Header.ContentLength(), 0)
	default:
		length = len(answer.Body())
	}
	switch {
	case length < 0:
		return nil, 0, false
	case w.skipsBody:
		return nil, length, true
	case !answer.IsBodyStream():
		return bytes.Clone(answer.Body()), length, true
	case !rec.Fits(int64(length)):
		return nil, 0, false
	}
	body = make([]byte, length)
	if n, err := io.ReadFull(answer.BodyStream(), body); err != nil {
		// What is left is too short, so that fasthttp breaks the connection, as it would have.
		answer.SetBodyStream(bytes.NewReader(body[:n]), length)
		return nil, 0, false
	}
	return body, length, true
}
