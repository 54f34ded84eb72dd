// Package explore searches all states that a model can reach, breadth first. It returns the
// shortest way to a state that breaks a promise. It knows no locks: core/internal/worlds has their
// models.
//
// States are told apart by 128-bit hashes of their keys. A model merges symmetric states by giving
// them the same key.
package explore

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Model is a state machine that yields its steps in the same order each time. S is a state: a
// value that no later step changes. E describes a step.
type Model[S any, E fmt.Stringer] interface {
	Start() S
	// Steps yields each step out of s: its event and the next state, or the promise it breaks.
	Steps(s S, yield func(event E, next S, broken error))
	// Key appends an encoding that only equal states share.
	Key(s S, to []byte) []byte
	// Check returns the promise that s breaks; nil: it keeps all.
	Check(s S) error
	// Describe prints s.
	Describe(s S) string
}

// A Result is the outcome of a search.
type Result struct {
	States, Transitions int
	// Depth is how many steps the deepest state is away.
	Depth     int
	Elapsed   time.Duration
	Complete  bool // the search has seen all states
	Violation *Violation
}

func (r Result) String() string {
	all := "all"
	if !r.Complete {
		all = "the first"
	}
	return fmt.Sprintf("%s %d states, %d transitions, depth %d, %.1f s", all, r.States, r.Transitions, r.Depth, r.Elapsed.Seconds())
}

// A Violation is the shortest way to a state that breaks a promise.
type Violation struct {
	Broken error
	Path   Path
	Trace  string // the events and states on the way
}

func (v *Violation) Error() string { return v.Broken.Error() + "\n" + v.Trace }

// A Path lists the numbers of the steps from the start.
type Path []int

func (p Path) String() string {
	if len(p) == 0 {
		return "start"
	}
	parts := make([]string, len(p))
	for i, n := range p {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// ParsePath reads what Path.String returns.
func ParsePath(text string) (Path, error) {
	if text == "start" {
		return nil, nil
	}
	var p Path
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("explore: %q is not a path; it has numbers and dots, such as 0.3.12", text)
		}
		p = append(p, n)
	}
	return p, nil
}

// A node says how a state was first reached.
type node struct {
	parent int32
	step   uint16
}

// A search is one run of Run.
type search[S any, E fmt.Stringer] struct {
	model Model[S, E]
	seeds [2]maphash.Seed
	seen  map[[2]uint64]struct{}
	nodes []node
	key   []byte
}

// Run explores a model until it has seen all states, or limit of them unless limit is 0. It stops
// at the first violation. No other has a shorter path.
func Run[S any, E fmt.Stringer](m Model[S, E], limit int) Result {
	began := time.Now()
	s := &search[S, E]{
		model: m,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		seen:  make(map[[2]uint64]struct{}),
	}
	r := s.run(limit)
	r.States, r.Elapsed = len(s.nodes), time.Since(began)
	return r
}

func (s *search[S, E]) run(limit int) (r Result) {
	start := s.model.Start()
	s.isNew(start)
	s.nodes = append(s.nodes, node{parent: -1})
	if err := s.model.Check(start); err != nil {
		r.Violation = s.violation(0, -1, err)
		return r
	}
	for level, first := []S{start}, 0; len(level) > 0; r.Depth++ {
		var next []S
		for i := range level {
			at, step := first+i, -1
			s.model.Steps(level[i], func(_ E, to S, broken error) {
				step++
				if r.Violation != nil {
					return
				}
				r.Transitions++
				if broken != nil {
					r.Violation = s.violation(at, step, broken)
					return
				}
				if !s.isNew(to) {
					return
				}
				s.nodes = append(s.nodes, node{int32(at), uint16(step)})
				if broken := s.model.Check(to); broken != nil {
					r.Violation = s.violation(len(s.nodes)-1, -1, broken)
					return
				}
				next = append(next, to)
			})
			if r.Violation != nil || limit > 0 && len(s.nodes) >= limit {
				return r
			}
		}
		first += len(level)
		level = next
	}
	r.Depth--
	r.Complete = true
	return r
}

// isNew adds a state, and reports whether it is new.
func (s *search[S, E]) isNew(state S) bool {
	s.key = s.model.Key(state, s.key[:0])
	hash := [2]uint64{maphash.Bytes(s.seeds[0], s.key), maphash.Bytes(s.seeds[1], s.key)}
	if _, known := s.seen[hash]; known {
		return false
	}
	s.seen[hash] = struct{}{}
	return true
}

// violation returns the way to a state, plus one more step unless that is -1.
func (s *search[S, E]) violation(at, step int, broken error) *Violation {
	var p Path
	if step >= 0 {
		p = Path{step}
	}
	for ; s.nodes[at].parent >= 0; at = int(s.nodes[at].parent) {
		p = append(p, int(s.nodes[at].step))
	}
	slices.Reverse(p)
	trace, _ := Replay(s.model, p)
	return &Violation{Broken: broken, Path: p, Trace: trace}
}

// Replay follows a path. It returns the events and states on the way, and the promise that breaks
// at the end.
func Replay[S any, E fmt.Stringer](m Model[S, E], p Path) (trace string, broken error) {
	var b strings.Builder
	state := m.Start()
	fmt.Fprintf(&b, "start\n%s", indent(m.Describe(state)))
	for i, want := range p {
		step, found := -1, false
		var next S
		m.Steps(state, func(event E, to S, err error) {
			if step++; step == want {
				found, next, broken = true, to, err
				fmt.Fprintf(&b, "%d. %s\n", i+1, event)
			}
		})
		if !found {
			return b.String(), fmt.Errorf("explore: step %d of the path is %d, and there are only %d", i+1, want, step+1)
		}
		if broken != nil {
			return b.String(), broken
		}
		state = next
		b.WriteString(indent(m.Describe(state)))
	}
	return b.String(), m.Check(state)
}

func indent(text string) string {
	return strings.ReplaceAll("\t"+strings.TrimSpace(text), "\n", "\n\t") + "\n"
}
