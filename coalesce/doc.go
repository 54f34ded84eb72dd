// Package coalesce runs the same work once for all who want it at the same time, in all processes,
// and gives its result to each of them. It is singleflight of golang.org/x/sync over a fleet: a
// cache entry expires, a thousand callers on ten machines compute the same report, and one run
// serves them all.
//
//	report, shared, err := coalesce.Do(ctx, locks, "report:"+tenant, coalesce.Options{}, func(ctx context.Context) (Report, error) {
//		return compute(ctx, tenant)
//	})
//
// The first caller takes a core.Once and runs. The others of its process wait for it in memory. Of each
// other process, one caller waits for the record that it leaves in Redis. A lock alone would let them
// run one after another.
//
// A Guard does the same for requests and their answers. Handlers get it from an adapter, such as
// httplock.Coalesce. An answer that is meant for one client is not shared; docs/guides/coalesce.md
// has the rules.
package coalesce
