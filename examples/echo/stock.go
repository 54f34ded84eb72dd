package main

import "sync"

// A stock stands for a database that does what it is told: each call by itself is safe, and nothing ties one to the next.
type stock struct {
	mu   sync.Mutex
	left map[string]int
}

func (s *stock) read(item string) (left int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, known = s.left[item]
	return left, known
}

func (s *stock) write(item string, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[item] = left
}
