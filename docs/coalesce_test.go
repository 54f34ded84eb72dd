package docs_test

import (
	"context"
	"testing"

	"github.com/reqlock/reqlock/coalesce"
)

type Report struct{ Tenant string }

func compute(_ context.Context, tenant string) (Report, error) { return Report{tenant}, nil }

// docs/guides/coalesce.md
func TestCoalesce(t *testing.T) {
	t.Parallel()
	locks, ctx, tenant := newLocks(t), context.Background(), "acme"
	for _, want := range []bool{false, true} {
		report, shared, err := coalesce.Do(ctx, locks, "report:"+tenant, coalesce.Options{}, func(ctx context.Context) (Report, error) {
			return compute(ctx, tenant)
		})
		if report.Tenant != "acme" || shared != want || err != nil {
			t.Errorf("%v, shared %v, %v", report, shared, err)
		}
	}
}
