// Schedule is a service whose instances make a report every second: one of them, and another
// one if that dies.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/reqlock/reqlock/core"
	"github.com/reqlock/reqlock/examples/internal/demo"
)

const every = time.Second

func main() {
	s := &scheduler{}
	demo.Main(demo.Program{
		Name: "schedule", What: "Reports, made by one instance at a time", Run: "go run -C examples/recipes ./schedule",
		Open: s.open, Work: s.work,
		Invite: func(base string) string { return "curl " + base + "/reports" },
	})
}

type scheduler struct {
	rdb   *redis.Client
	locks *core.Client
}

func (s *scheduler) open(rdb *redis.Client) (locks *core.Client, _ http.Handler, err error) {
	s.rdb = rdb
	s.locks, err = core.New(rdb, core.Options{WatchdogTimeout: 5 * time.Second}) // the longest gap after a crash
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reports", s.list)
	return s.locks, mux, err
}

// work runs in every instance. RunWhileHeld lets one of them schedule, until it ends or loses the
// lock.
func (s *scheduler) work(ctx context.Context) error {
	return core.RunWhileHeld(ctx, s.locks.Lock("schedule:reports"), s.schedule)
}

func (s *scheduler) schedule(ctx context.Context) error {
	for {
		due, err := s.next(ctx)
		if err != nil {
			fmt.Println("The schedule is read again:", err)
			due = time.Now().Add(time.Second)
		}
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done(): // the lock is lost, or the program ends
			return context.Cause(ctx)
		}
		if err == nil {
			s.report(ctx, due)
		}
	}
}

// next returns when the next report is due. The last one's time is in Redis, so that an instance
// starts where another stopped.
func (s *scheduler) next(ctx context.Context) (due time.Time, err error) {
	ms, err := s.rdb.Get(ctx, "reports:last").Int64()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	due = time.UnixMilli(ms).Add(every)
	if newest := time.Now().Truncate(every); due.Before(newest) { // one report stands for all that were missed
		due = newest
	}
	return due, err
}

// report makes the report and notes its time in one transaction: a crash makes no second one.
func (s *scheduler) report(ctx context.Context, due time.Time) {
	_, err := s.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, "reports:last", due.UnixMilli(), 0)
		return tx.RPush(ctx, "reports", fmt.Sprintf("%s by process %d", due.Format("15:04:05"), os.Getpid())).Err()
	})
	if err != nil {
		fmt.Println("The report is made again:", err)
	}
}

func (s *scheduler) list(w http.ResponseWriter, r *http.Request) {
	for _, line := range s.rdb.LRange(r.Context(), "reports", -20, -1).Val() {
		fmt.Fprintln(w, line)
	}
}
