package guard

import (
	"fmt"

	"github.com/reqlock/reqlock/internal/request"
)

// SetBodyBudget sets how many bytes of request bodies this process keeps in memory at a time, for
// all its guards together. That counts what Config.BufferBody, key functions such as keyfuncs.JSON,
// plugins and idempotency read before there is a lock, until the handler returns. A body that does
// not fit at the moment gets 503 ProblemBusy, with Retry-After; one larger than the budget,
// 413. A body takes room as it arrives, at most twice what has arrived. Its first 4 KiB do not
// count.
//
// 0 is the default, 64 MiB; -1 is no limit. Bodies that are in memory already stay there. It panics
// if bytes is less than -1.
func SetBodyBudget(bytes int64) {
	if bytes < -1 {
		panic(fmt.Sprintf("reqlock: guard: SetBodyBudget(%d): want a number of bytes, 0 for %d, or -1 for no bound", bytes, request.DefaultBudget))
	}
	request.SetBudget(bytes)
}
