package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// beginnings are the files with which several scripts begin. They are no scripts and have no reply.
var beginnings = []string{"fair_queue", "fenced_draw", "force_take", "force_tell", "latch_read", "permit_clock"}

// What several scripts do stands in one file. A script is the files that it needs, one after the
// other: some begin it, others are functions of KEYS and ARGV. Its digest is that of the whole text.
func TestParts(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	text := func(file string) string {
		t.Helper()
		used[file+".lua"] = true
		source, err := os.ReadFile(file + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		return string(source)
	}
	fn := func(file string) string { return "local function " + file + "(KEYS, ARGV)\n" + text(file) + "end\n\n" }
	checked := make(map[string]bool)
	for s, want := range map[*Script]string{
		acquire:           text("acquire"),
		fencedAcquire:     text("fenced_draw") + text("acquire"),
		onceAcquire:       fn("acquire") + text("once_acquire"),
		readAcquire:       text("read_acquire"),
		writeAcquire:      text("write_acquire"),
		fencedWrite:       text("fenced_draw") + text("write_acquire"),
		fairAcquire:       text("fair_queue") + text("fair_acquire"),
		fencedFairAcquire: text("fenced_draw") + text("fair_queue") + text("fair_acquire"),
		pass:              text("pass"),
		fencedPass:        text("fenced_draw") + text("pass"),
		fairPass:          text("fair_queue") + text("fair_pass"),
		fencedFairPass:    text("fenced_draw") + text("fair_queue") + text("fair_pass"),
		release:           text("release"),
		onceRelease:       fn("release") + text("once_release"),
		onceRecord:        fn("release") + text("once_record"),
		fairRelease:       text("fair_queue") + text("fair_release"),
		forceRelease:      text("force_tell") + text("force_take") + text("force_release"),
		fairForceRelease:  text("fair_queue") + text("force_tell") + text("force_take") + text("fair_force_release"),
		many:              fn("release") + fn("acquire") + text("many"),
		permitAcquire:     text("permit_clock") + text("permit_acquire"),
		permitRelease:     text("permit_clock") + text("permit_release"),
		permitPass:        text("permit_clock") + text("permit_pass"),
		permitUpdate:      text("permit_clock") + text("permit_update"),
		permitSet:         text("permit_clock") + text("permit_set"),
		permitInspect:     text("permit_clock") + text("permit_inspect"),
		permitHolders:     text("permit_clock") + text("permit_holders"),
		permitPresent:     text("permit_present"),
		permitEnter:       text("permit_clock") + text("permit_enter"),
		permitLeave:       text("permit_clock") + text("permit_leave"),
		permitForce:       text("permit_clock") + text("force_tell") + text("permit_force_release"),
		update:            text("update"),
		enter:             text("enter"),
		readWriteUpdate:   text("read_write_update"),
		renew:             text("renew"),
		holders:           text("holders"),
		present:           text("present"),
		inspect:           text("inspect"),
		latchSet:          text("latch_read") + text("latch_set"),
		latchCountDown:    text("latch_read") + text("latch_count_down"),
		latchCount:        text("latch_read") + text("latch_count"),
		latchForget:       text("latch_forget"),
		onceCount:         text("once_count"),
		onceLook:          text("once_look"),
		abilities:         text("abilities"),
	} {
		if s.Source != want {
			t.Errorf("%s has the text\n%s\nwant\n%s", s.Name, s.Source, want)
		}
		sum := sha1.Sum([]byte(s.Source))
		if s.SHA != hex.EncodeToString(sum[:]) || !Known([]byte(s.SHA)) {
			t.Errorf("%s has the digest %s, which is not that of its text, or not known", s.Name, s.SHA)
		}
		checked[s.SHA] = true
	}
	if len(checked) != len(known) {
		t.Errorf("this test has %d of %d scripts: add the others to its table", len(checked), len(known))
	}
	files, err := filepath.Glob("*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file] {
			t.Errorf("no script in the table of this test has %s", file)
		}
		name := strings.TrimSuffix(file, ".lua")
		source := text(name)
		if replies := strings.Count(source, "Reply:"); !strings.HasPrefix(source, "-- ") || (replies == 1) == slices.Contains(beginnings, name) {
			t.Errorf("%s does not begin with what it does, takes and replies", file)
		}
	}
}
