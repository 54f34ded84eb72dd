package coalesce

import (
	"encoding/json"
	"fmt"
)

// A Codec turns results into what Redis stores, and back. It is safe for concurrent use. Unmarshal
// neither keeps nor changes data, which callers share.
type Codec interface {
	Marshal(result any) ([]byte, error)
	Unmarshal(data []byte, result any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(result any) ([]byte, error)      { return json.Marshal(result) }
func (jsonCodec) Unmarshal(data []byte, result any) error { return json.Unmarshal(data, result) }

// An Error is the error of a run, for the callers that share it. They may be in other processes, so it
// has the text and matches no other error.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// A record begins with its kind. The result, or the text of the error, follows.
const (
	kindResult = 'R'
	kindError  = 'E'
)

// panicked is the text for those who wait for a run that panics or ends its goroutine.
const panicked = "reqlock: coalesce: the run of another caller panicked or ended its goroutine"

func errorRecord(text string) []byte { return append([]byte{kindError}, text...) }

func resultRecord(codec Codec, result any) ([]byte, error) {
	data, err := codec.Marshal(result)
	if err != nil {
		return nil, fmt.Errorf("reqlock: coalesce: a %T cannot be shared: %w", result, err)
	}
	return append([]byte{kindResult}, data...), nil
}

// read reads a record into result, which is a pointer. It returns the error of the run, if that has
// failed.
func read(codec Codec, record []byte, result any) error {
	switch record[0] {
	case kindError:
		return &Error{string(record[1:])}
	case kindResult:
		if err := codec.Unmarshal(record[1:], result); err != nil {
			return fmt.Errorf("reqlock: coalesce: the result of another caller is no %T: %w; give each type keys of its own", result, err)
		}
		return nil
	}
	return fmt.Errorf("reqlock: coalesce: the record is not of this package: it begins with %q", record[0])
}
