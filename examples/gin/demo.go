package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate sends opposite transfers at once. All but the last involve bob. If two of them read
// the same balances, the sum would change.
func demonstrate(ctx context.Context, base string) error {
	fmt.Println("\nPOST /transfers: each locks two accounts; transfers that share one wait for each other")
	before, err := show(ctx, base, "before")
	if err != nil {
		return err
	}
	var requests []*demo.Request
	for i, t := range []transfer{
		{"alice", "bob", 30}, {"bob", "alice", 20}, {"bob", "carol", 5}, {"carol", "bob", 10}, {"dave", "erin", 40},
	} {
		body, err := json.Marshal(t)
		if err != nil {
			return err
		}
		requests = append(requests, &demo.Request{
			Name: string(rune('A' + i)),
			What: fmt.Sprintf("%2d from %s to %s", t.Amount, t.From, t.To),
			Path: "/transfers",
			JSON: string(body),
		})
	}
	if err := demo.Collide(ctx, base, requests); err != nil {
		return err
	}
	slices.SortFunc(requests, func(a, b *demo.Request) int { return cmp.Compare(a.Waited, b.Waited) })
	demo.Show(requests)
	fmt.Printf("\n%s\n", demo.Legend)
	after, err := show(ctx, base, "after")
	if err == nil && after != before {
		err = fmt.Errorf("the sum of all accounts was %d and is %d now", before, after)
	}
	return err
}

// show prints all balances and returns their sum.
func show(ctx context.Context, base, when string) (sum int64, err error) {
	r := &demo.Request{Path: "/accounts", GET: true}
	if err := demo.Collide(ctx, base, []*demo.Request{r}); err != nil {
		return 0, err
	}
	var balances map[string]int64
	if err := json.Unmarshal(r.Body, &balances); err != nil {
		return 0, fmt.Errorf("GET /accounts: %w", err)
	}
	var texts []string
	for _, account := range slices.Sorted(maps.Keys(balances)) {
		texts = append(texts, fmt.Sprintf("%s %d", account, balances[account]))
		sum += balances[account]
	}
	fmt.Printf("\n  %-6s  %s; sum %d\n", when, strings.Join(texts, ", "), sum)
	return sum, nil
}

// invitation returns the commands to try by hand.
func invitation(base string) string {
	post := func(from, to string) string {
		return fmt.Sprintf(`curl -i %s/transfers -H 'Content-Type: application/json' -d '{"from":%q,"to":%q,"amount":1}'`, base, from, to)
	}
	return post("alice", "bob") + " & " + post("bob", "alice") + "; wait"
}
