package idempotency

import (
	"errors"
	"testing"

	"github.com/reqlock/reqlock/internal/request"
)

// Repeats that send one record share it, and it counts once towards the budget.
func TestAnswers(t *testing.T) { // not parallel: it reads the budget of the process
	var s answers
	opened := 0
	open := func(data []byte) (*record, error) {
		opened++
		return &record{kind: kindAnswered, body: data}, nil
	}
	take := func(name, data string) *answer {
		t.Helper()
		a, err := s.take(name, append([]byte(data), make([]byte, request.Exempt+999)...), open)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	want := func(decoded int, used int64) {
		t.Helper()
		if opened != decoded || request.BudgetUsed() != used {
			t.Errorf("%d records are decoded, %d bytes are used; want %d and %d", opened, request.BudgetUsed(), decoded, used)
		}
	}
	first, second := take("a", "1"), take("a", "1")
	if first != second {
		t.Error("two repeats have a copy each")
	}
	want(1, 1000)
	other, newer := take("b", "1"), take("a", "2") // another name, another record of the name
	want(3, 3000)
	if again := take("a", "2"); again != newer {
		t.Error("the newer record is not shared")
	}
	for _, a := range []*answer{first, second, newer, newer, other} {
		s.drop(a)
	}
	want(3, 0)
	if len(s.byName) != 0 {
		t.Errorf("%d answers are left", len(s.byName))
	}
	s.drop(take("a", "1"))
	want(4, 0)
	s.sealed = true // there is an opened copy beside the stored one
	sealed := take("a", "1")
	want(5, request.Exempt+2000)
	s.drop(sealed)
	want(5, 0)
}

// An answer that finds no room is not sent. One that is larger than the budget needs all of it.
func TestAnswers_NoRoom(t *testing.T) { // not parallel: it changes the budget of the process
	request.SetBudget(10 << 10)
	defer request.SetBudget(0)
	var s answers
	open := func(data []byte) (*record, error) { return &record{body: make([]byte, len(data))}, nil }
	large, err := s.take("large", make([]byte, 1<<20), open)
	if err != nil {
		t.Fatalf("an answer larger than the budget: %v", err)
	}
	if _, err := s.take("other", make([]byte, 8<<10), open); !errors.Is(err, request.ErrBusy) {
		t.Errorf("another answer: %v, want ErrBusy", err)
	}
	if a, err := s.take("large", make([]byte, 1<<20), open); err != nil || a != large {
		t.Errorf("the same answer once more: %v", err)
	}
	s.drop(large)
	s.drop(large)
	if a, err := s.take("other", make([]byte, 8<<10), open); err != nil {
		t.Errorf("another answer, with room: %v", err)
	} else {
		s.drop(a)
	}
	if used := request.BudgetUsed(); used != 0 {
		t.Errorf("%d bytes stay in use", used)
	}
}
