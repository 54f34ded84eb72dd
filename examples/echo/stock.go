package main

import "sync"

// A stock stands in for a database: each call is safe on its own, but two calls are not one
// transaction.
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
