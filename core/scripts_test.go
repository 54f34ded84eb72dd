package core

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/internal/lab/redistest"
)

// Scripts that rules of a proxy match.
var (
	acquireScript = lua.Acquire("", "", 0).Script
	updateScript  = lua.Update("", "", 0, 0).Script
	releaseScript = lua.Release("", "", lua.Announcement{}).Script
	forceScript   = lua.ForceRelease("", nil, lua.Announcement{}).Script
	enterScript   = lua.Enter(lua.Entry{}, 0).Script
	holdersScript = lua.Holders("").Script
	presentScript = lua.Present("", nil).Script
	renewScript   = lua.Renew(nil, 0).Script
	inspectScript = lua.Inspect("", "").Script

	passScript               = lua.Pass("", "", "", 0).Script
	fairPassScript           = lua.PassFair(&lua.Fair{}, "", "", 0).Script
	fencedPassScript         = lua.PassFenced("", "", "", "", 0).Script
	fencedAcquireScript      = lua.AcquireFenced("", "", "", 0).Script
	fencedFairPassScript     = lua.PassFencedFair(&lua.Fair{}, "", "", 0).Script
	fencedFairAcquireScript  = lua.AcquireFencedFair(&lua.Fair{}, "", 0, 0, 0).Script
	fencedWriteAcquireScript = lua.AcquireFencedWrite("", "", "", 0).Script
	readAcquireScript        = lua.AcquireRead("", "", "", 0).Script
	writeAcquireScript       = lua.AcquireWrite("", "", 0).Script
	readWriteUpdateScript    = lua.UpdateReadWrite(lua.ReadWriteHold{}, 0, lua.Announcement{}).Script
	fairAcquireScript        = lua.AcquireFair(&lua.Fair{}, "", 0, 0, 0).Script
	fairReleaseScript        = lua.ReleaseFair(&lua.Fair{}, "").Script
	fairForceScript          = lua.ForceReleaseFair(&lua.Fair{}, nil).Script

	manyScript = lua.Many(nil).Script // acquire and release, of several locks

	onceAcquireScript = lua.OnceAcquire("", "", "", 0, lua.Marks{}).Script
	onceLookScript    = lua.OnceLook("", "", "").Script
	onceRecordScript  = lua.OnceRecord("", "", "", 0, lua.Record{}, lua.Announcement{}).Script
	onceCountScript   = lua.OnceCount("", "", 0, 0).Script
	onceReleaseScript = lua.OnceRelease("", "", "", lua.Removal{}, lua.Announcement{}).Script

	latchSetScript       = lua.LatchSet("", 1, lua.LatchMark{}, lua.Announcement{}).Script
	latchCountDownScript = lua.LatchCountDown("", lua.LatchMark{}, lua.Announcement{}).Script
	latchCountScript     = lua.LatchCount("").Script
	latchForgetScript    = lua.LatchForget("").Script

	latchScripts = []*lua.Script{latchSetScript, latchCountDownScript, latchCountScript, latchForgetScript}

	permitAcquireScript = lua.AcquirePermits(&lua.Semaphore{}, "", 1, 0, lua.Declaration{}).Script
	permitReleaseScript = lua.ReleasePermits(&lua.Semaphore{}, "", 1).Script
	permitPassScript    = lua.PassPermits(&lua.Semaphore{}, "", "", 1, 0).Script
	permitUpdateScript  = lua.UpdatePermits(&lua.Semaphore{}, "", 1, 0).Script
	permitEnterScript   = lua.EnterPermits(&lua.Semaphore{}, lua.Family{}, "", 0).Script
	permitLeaveScript   = lua.LeavePermits(&lua.Semaphore{}, lua.Family{}).Script
	permitScripts       = []*lua.Script{permitAcquireScript, permitReleaseScript, permitPassScript, permitUpdateScript,
		lua.ForceReleasePermits(&lua.Semaphore{}, "", nil).Script, lua.SetPermits(&lua.Semaphore{}, 0).Script,
		lua.CountPermits(&lua.Semaphore{}).Script, lua.PermitHolders("").Script, lua.PresentPermits("", nil).Script,
		permitEnterScript, permitLeaveScript}

	onceScripts = []*lua.Script{onceAcquireScript, onceLookScript, onceRecordScript, onceReleaseScript}
	allScripts  = append([]*lua.Script{
		passScript, fencedPassScript, fairPassScript, fencedAcquireScript, readAcquireScript, writeAcquireScript, readWriteUpdateScript, fairAcquireScript, fairReleaseScript, fairForceScript,
		fencedFairPassScript, fencedFairAcquireScript, fencedWriteAcquireScript,
		enterScript, acquireScript, updateScript, releaseScript, manyScript, forceScript, holdersScript, presentScript, renewScript, inspectScript,
	}, slices.Concat(onceScripts, permitScripts, latchScripts)...)
)

// runsScript matches commands that run one of the scripts, or any script.
func runsScript(scripts ...*lua.Script) func(args []string) bool {
	if len(scripts) == 0 {
		scripts = allScripts
	}
	return func(args []string) bool {
		return len(args) > 1 && slices.ContainsFunc(scripts, func(s *lua.Script) bool {
			return args[0] == "EVALSHA" && args[1] == s.SHA || args[0] == "EVAL" && args[1] == s.Source
		})
	}
}

// countCommands counts the commands that match from now on.
func countCommands(proxy *redistest.Proxy, match func(args []string) bool) func() int {
	var n atomic.Int64
	proxy.OnEvery(func(args []string) bool {
		if match(args) {
			n.Add(1)
		}
		return false // let it pass
	}, redistest.Delay(1))
	return func() int { return int(n.Load()) }
}

// loadScripts loads every script into Redis, so that each attempt is one EVALSHA.
func (fx *redisFixture) loadScripts(t testing.TB) {
	t.Helper()
	for _, s := range allScripts {
		if err := fx.rdb.ScriptLoad(bg, s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
