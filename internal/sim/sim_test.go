package sim

import (
	"context"
	"flag"
	"fmt"
	"github.com/redis/go-redis/v9"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var fromFlag = flag.Uint64("from", 1, "")
var toFlag = flag.Uint64("to", 30, "")
var seedFlag = flag.Uint64("seed", 0, "run this seed alone")

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
func init() {
	ScriptName = scriptName()
	redis.SetLogger(quiet{})
}
func simulate(t *testing.T, seed uint64) (r Result) {
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) { r = Run(seed) })
	return r
}

func TestTry(t *testing.T) {
	from, to := *fromFlag, *toFlag
	if *seedFlag != 0 {
		from, to = *seedFlag, *seedFlag
	}
	bad := 0
	var sim, wall time.Duration
	for seed := from; seed <= to; seed++ {
		began := time.Now()
		r := simulate(t, seed)
		took := time.Since(began)
		sim, wall = sim+r.Simulated, wall+took
		fmt.Printf("%d: %s in %s, %.0fx, %d ops, %d commands, %d faults, %x, %d bad\n", seed, r.Simulated, took, r.Simulated.Seconds()/took.Seconds(), r.Operations, r.Commands, r.Faults, r.Digest, len(r.Violations))
		if len(r.Violations) > 0 {
			for _, v := range r.Violations[:min(3, len(r.Violations))] {
				fmt.Println("   ", v)
			}
			bad++
			f, _ := os.Create(fmt.Sprintf("/tmp/sim-%d.txt", seed))
			r.Trace(io.Writer(f))
			f.Close()
		}
	}
	fmt.Printf("%d bad; %.0fx\n", bad, sim.Seconds()/wall.Seconds())
}

func scriptName() func(string) string {
	dir := "../../core/internal/lua/"
	files, _ := os.ReadDir(dir)
	read := func(name string) string { b, _ := os.ReadFile(dir + name + ".lua"); return string(b) }
	names := make(map[string]string)
	for _, f := range files {
		name, isLua := strings.CutSuffix(f.Name(), ".lua")
		if isLua {
			for _, prefix := range []string{"", "fair_queue", "fenced_draw"} {
				text := read(name)
				if prefix != "" {
					text = read(prefix) + text
				}
				names[digest(text)] = name
			}
		}
	}
	return func(sha string) string {
		if n, ok := names[sha]; ok {
			return n
		}
		return "script-" + sha[:8]
	}
}
