package coalesce

import (
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/reqlock/reqlock/internal/request"
)

// sharedHeader marks an answer that another request got first.
const sharedHeader = "Reqlock-Shared"

// An answer is what requests share, or why they do not. All but its account is constant.
type answer struct {
	because string // "": they share the rest.
	status  int
	header  http.Header // the changes of the handler; without values: it took the header away
	body    []byte
	packed  int       // the size of the body, which is deflated; 0: it is not
	born    time.Time // when the run ended
	// account has the body until no one sends it.
	account *request.Account
}

// A stored answer begins with the magic, the last byte of which is the version, and its kind.
const (
	answerMagic  = "RQLC\x01"
	kindShared   = 'A'
	kindPacked   = 'Z'
	kindUnshared = 'N'
)

var errNotAnAnswer = errors.New("reqlock: coalesce: the record was written by another version, or by another program that uses this key")

// encode returns the record of an answer. packs means that its body may be deflated.
func (a *answer) encode(packs bool) []byte {
	out := []byte(answerMagic)
	if a.because != "" {
		return append(append(out, kindUnshared), a.because...)
	}
	var packed []byte
	if packs {
		packed = pack(a.body)
	}
	if packed == nil {
		return append(a.appendHead(append(out, kindShared)), a.body...)
	}
	out = binary.AppendUvarint(a.appendHead(append(out, kindPacked)), uint64(len(a.body)))
	return append(out, packed...)
}

func (a *answer) appendHead(out []byte) []byte {
	out = binary.AppendUvarint(out, uint64(a.status))
	out = binary.AppendUvarint(out, uint64(a.born.UnixMilli()))
	return request.AppendHeader(out, a.header)
}

func decodeAnswer(data []byte) (*answer, error) {
	if len(data) <= len(answerMagic) || string(data[:len(answerMagic)]) != answerMagic {
		return nil, errNotAnAnswer
	}
	kind, in := data[len(answerMagic)], request.Decoder{Data: data[len(answerMagic)+1:]}
	switch kind {
	case kindUnshared:
		if because := string(in.Data); reasons[because] {
			return &answer{because: because}, nil
		}
	case kindShared, kindPacked:
		a := &answer{status: int(in.Number(999)), born: time.UnixMilli(int64(in.Number(math.MaxInt64))), header: in.Header()}
		if kind == kindPacked {
			a.packed = int(in.Number(mostPacked))
		}
		if a.body = in.Data; !in.Bad && a.status >= 200 {
			return a, nil
		}
	}
	return nil, errNotAnAnswer
}

// joined returns the error of a release, and why the answer is not shared.
func (a *answer) joined(released error) error {
	if a.because != "" {
		return errors.Join(&NotShared{a.because}, released)
	}
	return released
}

// age returns the header Age: what the run has set, and how long ago that was. With a clock that is
// behind that of the run, no time has passed.
func (a *answer) age(now time.Time) string {
	began, err := strconv.ParseUint(a.header.Get("Age"), 10, 31)
	if err != nil {
		began = 0
	}
	return strconv.FormatInt(int64(began)+max(0, int64(now.Sub(a.born)/time.Second)), 10)
}

// send answers a request. aged says that the client learns how old the answer is.
func (a *answer) send(w http.ResponseWriter, r *http.Request, marked, aged bool) {
	h := w.Header()
	encoder := request.Encodes(h)
	for name, values := range a.header {
		h[name] = slices.Clone(values)
	}
	if marked {
		h.Set(sharedHeader, "1")
	}
	if aged {
		h.Set("Age", a.age(time.Now()))
	}
	if notModified(r.Header, a.status, a.header) {
		for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding"} {
			delete(h, name)
		}
		w.WriteHeader(http.StatusNotModified)
		return
	}
	request.Send(w, r, a.status, a.body, encoder)
}
