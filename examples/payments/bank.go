package main

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A bank stands in for the service that moves the money. It is in Redis, so that it outlives the
// API. It takes keys itself, and does not repeat a charge that it knows.
type bank struct{ rdb *redis.Client }

// A charge is a completed payment.
type charge struct {
	ID     string `json:"id"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

const (
	callsKey   = "payments:calls"
	chargesKey = "payments:charges" // by the keys that they came with
)

// charge moves money once per key, and reports whether this call did. Without a key, it moves money
// each time.
func (b *bank) charge(ctx context.Context, key, to string, amount int64) (c charge, first bool, err error) {
	calls, err := b.rdb.Incr(ctx, callsKey).Result()
	if err != nil {
		return c, false, err
	}
	id := "ch_" + strconv.FormatInt(calls, 10)
	if key == "" {
		key = id
	}
	text, err := json.Marshal(charge{ID: id, To: to, Amount: amount})
	if err != nil {
		return c, false, err
	}
	if first, err = b.rdb.HSetNX(ctx, chargesKey, key, text).Result(); err != nil {
		return c, false, err
	}
	known, err := b.rdb.HGet(ctx, chargesKey, key).Bytes()
	if err != nil {
		return c, false, err
	}
	err = json.Unmarshal(known, &c)
	return c, first, err
}

// ledger returns the charges, and how often charge was called.
func (b *bank) ledger(ctx context.Context) (charges []charge, calls int64, err error) {
	texts, err := b.rdb.HVals(ctx, chargesKey).Result()
	if err != nil {
		return nil, 0, err
	}
	charges = make([]charge, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &charges[i]); err != nil {
			return nil, 0, err
		}
	}
	calls, err = b.rdb.Get(ctx, callsKey).Int64()
	if err == redis.Nil {
		err = nil
	}
	return charges, calls, err
}
