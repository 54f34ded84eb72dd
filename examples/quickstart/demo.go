package main

import (
	"context"

	"github.com/reqlock/reqlock/examples/internal/demo"
)

// demonstrate makes requests collide on both routes.
func demonstrate(ctx context.Context, base string) error { return demo.Orders(ctx, base, waitTime) }
