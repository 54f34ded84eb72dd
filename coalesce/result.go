package coalesce

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
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

// An outcome is what a group lands with: a record, the answer of a Guard's run in this process, or an
// error that concerns all who wait.
type outcome struct {
	record []byte
	answer *answer
	err    error

	// once decodes the record into value, a pointer, if the callers of Do may share that, or into the
	// answer that requests share.
	once   sync.Once
	value  any
	failed error
	// users is how many requests have not sent the answer.
	users atomic.Int32
}

// read returns the result in an outcome with a record, or the error of the run. Callers of a group
// share what none of them can change. Anything else each of them decodes for itself.
func read[T any](codec Codec, o *outcome) (T, error) {
	o.once.Do(func() {
		if immutable(reflect.TypeFor[T]()) {
			result, err := decode[T](codec, o.record)
			o.value, o.failed = &result, err
		}
	})
	if shared, ok := o.value.(*T); ok {
		return *shared, o.failed
	}
	return decode[T](codec, o.record)
}

// immutable reports whether copies of a value share nothing that can be changed.
func immutable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return immutable(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if !immutable(field.Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() < reflect.Array && t.Kind() != reflect.Invalid || t.Kind() == reflect.String
}

func decode[T any](codec Codec, record []byte) (result T, err error) {
	switch record[0] {
	case kindError:
		return result, &Error{string(record[1:])}
	case kindResult:
		if err := codec.Unmarshal(record[1:], &result); err != nil {
			return result, fmt.Errorf("reqlock: coalesce: the result of another caller is no %T: %w; give each type keys of its own", &result, err)
		}
		return result, nil
	}
	return result, fmt.Errorf("reqlock: coalesce: the record is not of this package: it begins with %q", record[0])
}
