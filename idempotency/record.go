package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"

	"github.com/reqlock/reqlock/internal/request"
)

// A record is what Redis stores of a run. docs/inside/how-it-works.md#the-record-format
// defines its format.
type record struct {
	kind        recordKind
	fingerprint [fingerprintSize]byte // the fingerprint of the request
	// The status, the header and the body are those of the answer. A name without values is a header
	// that the handler took away.
	status int
	header http.Header
	body   []byte
}

type recordKind byte

const (
	kindAnswered   recordKind = 'A' // The record has the answer.
	kindUnrecorded recordKind = 'N' // The run has ended, and its answer cannot be replayed.
	kindBegun      recordKind = 'U' // The outcome is unknown until another record replaces this one.
)

const (
	recordMagic     = "RQLI"
	recordVersion   = 1
	fingerprintSize = sha256.Size
)

var (
	errNotARecord   = errors.New("reqlock: idempotency: the stored value is not a record of this package")
	errSealedRecord = errors.New("reqlock: idempotency: the record is sealed, and there is no Config.Codec")
	errNewerRecord  = errors.New("reqlock: idempotency: the record was written by a newer version")
)

func (rec *record) encode() []byte {
	out := make([]byte, 0, len(recordMagic)+2+fingerprintSize+512+len(rec.body))
	out = append(out, recordMagic...)
	out = append(out, recordVersion, byte(rec.kind))
	out = append(out, rec.fingerprint[:]...)
	if rec.kind != kindAnswered {
		return out
	}
	out = binary.AppendUvarint(out, uint64(rec.status))
	out = request.AppendHeader(out, rec.header)
	return append(out, rec.body...)
}

// decodeRecord refuses unknown formats: an answer is replayed exactly or not at all.
func decodeRecord(data []byte) (*record, error) {
	if bytes.HasPrefix(data, []byte(sealedMagic)) {
		return nil, errSealedRecord
	}
	if len(data) <= len(recordMagic) || string(data[:len(recordMagic)]) != recordMagic {
		return nil, errNotARecord
	}
	data = data[len(recordMagic):]
	if data[0] > recordVersion {
		return nil, fmt.Errorf("%w: its format is %d, this version knows %d", errNewerRecord, data[0], recordVersion)
	}
	if data[0] < recordVersion || len(data) < 2+fingerprintSize {
		return nil, errNotARecord
	}
	rec := &record{kind: recordKind(data[1])}
	copy(rec.fingerprint[:], data[2:])
	in := request.Decoder{Data: data[2+fingerprintSize:]}
	switch rec.kind {
	case kindUnrecorded, kindBegun:
		in.Bad = len(in.Data) > 0
	case kindAnswered:
		rec.status = int(in.Number(999))
		rec.header = in.Header()
		rec.body = in.Data
		in.Bad = in.Bad || rec.status < 200
	default:
		in.Bad = true
	}
	if in.Bad {
		return nil, errNotARecord
	}
	return rec, nil
}
