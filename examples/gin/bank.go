package main

import (
	"maps"
	"sync"
)

// A bank stands in for a database: each call is safe on its own, but two calls are not one
// transaction.
type bank struct {
	mu       sync.Mutex
	balances map[string]int64
}

func (b *bank) balance(account string) (balance int64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	balance, known = b.balances[account]
	return balance, known
}

func (b *bank) set(balances map[string]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.balances, balances)
}

func (b *bank) all() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.balances)
}
