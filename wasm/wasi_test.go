package wasm

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// The host has each function of preview 1 with its signature, so that what a compiler declares can
// be linked.
func TestWASI_Functions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx) //nolint:errcheck // nothing runs in it
	builder := r.NewHostModuleBuilder("all")
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(builder)
	all, err := builder.Instantiate(ctx)
	if err == nil {
		err = wasi.instantiate(ctx, r, moduleWASI)
	}
	if err != nil {
		t.Fatal(err)
	}
	functions := r.Module(moduleWASI).ExportedFunctionDefinitions()
	for name, want := range all.ExportedFunctionDefinitions() {
		switch f := functions[name]; {
		case f == nil:
			t.Errorf("no %s", name)
		case signature(f) != signature(want):
			t.Errorf("%s is %s; want %s", name, signature(f), signature(want))
		}
	}
	if len(functions) != len(all.ExportedFunctionDefinitions()) || len(functions) != len(wasi) {
		t.Errorf("%d functions", len(functions))
	}
}

// A wasiGuest calls functions of WASI as a guest does.
type wasiGuest struct {
	*testing.T
	instance *instance
}

func newWASIGuest(t *testing.T, log *logged) *wasiGuest {
	t.Helper()
	p := start(t, "hostile/poll", Config{MaxInstances: 1, Logger: slog.New(slog.NewTextHandler(log, nil))}) // has 16 MiB
	g := &wasiGuest{t, p.current.idle[0]}
	g.instance.deadline.begin(patience)
	return g
}

// memory returns the guest's memory as a function sees it.
func (g *wasiGuest) memory(name string) memory {
	return memory{g.instance.module.Memory(), name, g.instance.deadline}
}

func wasiFunction(name string) hostFunction {
	return wasi[slices.IndexFunc(wasi, func(f hostFunction) bool { return f.name == name })]
}

// call returns the result of a function with one. The arguments that are not given are 0.
func (g *wasiGuest) call(name string, args ...uint64) uint64 {
	stack := make([]uint64, 16)
	copy(stack, args)
	wasiFunction(name).fn(g.instance, g.memory(name), stack)
	return stack[0]
}

// write puts numbers of 32 bits into the memory.
func (g *wasiGuest) write(at uint32, numbers ...uint32) {
	for i, n := range numbers {
		if !g.instance.module.Memory().WriteUint32Le(at+4*uint32(i), n) {
			g.Fatal("outside the memory")
		}
	}
}

func (g *wasiGuest) read(at, length uint32) string {
	b, ok := g.instance.module.Memory().Read(at, length)
	if !ok {
		g.Fatal("outside the memory")
	}
	return hex.EncodeToString(b)
}

// Functions on files, directories and sockets answer the error that programs expect.
func TestWASI_NoFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]uint64{
		"fd_advise": wasiOK, "fd_allocate": wasiSpipe, "fd_close": wasiOK, "fd_datasync": wasiOK, "fd_fdstat_set_flags": wasiOK,
		"fd_fdstat_set_rights": wasiNosys, "fd_filestat_set_size": wasiInval, "fd_filestat_set_times": wasiNosys, "fd_pread": wasiSpipe,
		"fd_prestat_get": wasiBadF, "fd_prestat_dir_name": wasiBadF, "fd_pwrite": wasiSpipe, "fd_readdir": wasiNotdir, "fd_renumber": wasiNotsup,
		"fd_seek": wasiSpipe, "fd_sync": wasiOK, "fd_tell": wasiSpipe,
		"path_create_directory": wasiBadF, "path_filestat_get": wasiBadF, "path_filestat_set_times": wasiBadF, "path_link": wasiBadF,
		"path_open": wasiBadF, "path_readlink": wasiBadF, "path_remove_directory": wasiBadF, "path_rename": wasiBadF, "path_symlink": wasiBadF,
		"path_unlink_file": wasiBadF,
		"sock_accept":      wasiNotsock, "sock_recv": wasiNotsock, "sock_send": wasiNotsock, "sock_shutdown": wasiNotsock,
		"args_get": wasiOK, "environ_get": wasiOK, "proc_raise": wasiNosys, "sched_yield": wasiOK,
	} {
		for _, fd := range []uint64{0, 1, 2, 3, 1<<32 - 1} {
			stack := make([]uint64, 9)
			for i := range stack {
				stack[i] = 1<<32 - 1
			}
			stack[0] = fd
			want := want
			isFile := strings.HasPrefix(name, "fd_") || strings.HasPrefix(name, "sock_")
			if isFile && name != "fd_fdstat_set_rights" && fd > stderr {
				want = wasiBadF
			}
			wasiFunction(name).fn(nil, memory{}, stack) // a look at the memory would panic
			if stack[0] != want {
				t.Errorf("%s on %d: %d; want %d", name, int32(fd), stack[0], want)
			}
		}
	}
}

// What the functions write is as in wazero, which had them before.
func TestWASI_Results(t *testing.T) {
	t.Parallel()
	log := &logged{}
	g := newWASIGuest(t, log)
	const outside = 1<<32 - 4
	check := func(got, want uint64, name string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d; want %d", name, got, want)
		}
	}
	for _, name := range []string{"args_sizes_get", "environ_sizes_get"} {
		g.write(1024, 7, 7)
		check(g.call(name, 1024, 1028), wasiOK, name)
		if got := g.read(1024, 8); got != "0000000000000000" {
			t.Errorf("%s: %s", name, got)
		}
		check(g.call(name, 1024, outside+1), wasiFault, name)
	}
	for fd := range uint64(3) {
		check(g.call("fd_fdstat_get", fd, 1024), wasiOK, "fd_fdstat_get")
		if got := g.read(1024, 24); got != "0100000000000000ff01e008000000000000000000000000" {
			t.Errorf("fd_fdstat_get: %s", got)
		}
		check(g.call("fd_filestat_get", fd, 1024), wasiOK, "fd_filestat_get")
		if got := g.read(1024, 64); got != strings.Repeat("0", 32)+"01000000000000000100000000000000"+strings.Repeat("0", 64) {
			t.Errorf("fd_filestat_get: %s", got)
		}
	}
	for _, name := range []string{"fd_fdstat_get", "fd_filestat_get"} {
		check(g.call(name, 3, 1024), wasiBadF, name)
		check(g.call(name, 0, outside), wasiFault, name)
	}
	for clock, resolution := range []string{"e803000000000000", "0100000000000000"} {
		check(g.call("clock_res_get", uint64(clock), 1024), wasiOK, "clock_res_get")
		if got := g.read(1024, 8); got != resolution {
			t.Errorf("clock_res_get of %d: %s", clock, got)
		}
		check(g.call("clock_time_get", uint64(clock), 0, outside), wasiFault, "clock_time_get")
	}
	check(g.call("clock_res_get", 2, 1024), wasiInval, "clock_res_get")
	check(g.call("clock_time_get", 2, 0, 1024), wasiInval, "clock_time_get")
	clock := func(id uint64) time.Duration {
		check(g.call("clock_time_get", id, 0, 1024), wasiOK, "clock_time_get")
		n, _ := g.memory("").ReadUint64Le(1024)
		return time.Duration(n)
	}
	if now := time.Unix(0, int64(clock(clockReal))); time.Since(now).Abs() > patience {
		t.Errorf("the time is %s", now)
	}
	if first, second := clock(clockMonotonic), clock(clockMonotonic); first <= 0 || second < first || second > first+patience {
		t.Errorf("from %s to %s", first, second)
	}
	check(g.call("random_get", 1024, 0), wasiOK, "random_get")
	check(g.call("random_get", 1024, outside), wasiFault, "random_get")
	g.write(2048, 0, 0)
	check(g.call("random_get", 2048, 3*randomPiece+8), wasiOK, "random_get")
	if g.read(2048, 8) == "0000000000000000" || g.read(2048+3*randomPiece, 8) == "0000000000000000" {
		t.Error("not random")
	}
	func() {
		defer func() {
			if exit, ok := recover().(*sys.ExitError); !ok || exit.ExitCode() != 3 {
				t.Errorf("%v", exit)
			}
		}()
		g.call("proc_exit", 3)
	}()
}

// fd_write joins its buffers, of which some may be empty.
func TestWASI_Write(t *testing.T) {
	t.Parallel()
	log := &logged{}
	g := newWASIGuest(t, log)
	g.memory("").WriteString(512, "HelloWorld\n")
	g.write(1024, 512, 5, 0, 0, 517, 6, 512, 0)
	for fd, name := range map[uint64]string{stdout: "stdout", stderr: "stderr"} {
		if errno := g.call("fd_write", fd, 1024, 4, 2048); errno != wasiOK || g.read(2048, 4) != "0b000000" {
			t.Errorf("%d: %d, %s", fd, errno, g.read(2048, 4))
		}
		if !strings.Contains(log.String(), `guest output on `+name+`" plugin=`) || !strings.Contains(log.String(), "text=HelloWorld\n") {
			t.Errorf("no output on %s in the log:\n%s", name, log)
		}
	}
	for _, fd := range []uint64{stdin, 3, 1<<32 - 1} {
		if errno := g.call("fd_write", fd, 1024, 4, 2048); errno != wasiBadF {
			t.Errorf("on %d: %d", fd, errno)
		}
	}
	g.write(1024, 512, 1<<31)
	for _, args := range [][]uint64{{1, 1024, 1, 2048}, {1, 1<<32 - 8, 1, 2048}, {1, 1024, 0, 1<<32 - 2}, {1, 16 << 20, 1<<32 - 1, 2048}} {
		if errno := g.call("fd_write", args...); errno != wasiFault {
			t.Errorf("of %d: %d", args, errno)
		}
	}
	for _, args := range [][]uint64{{0, 0, 1<<32 - 1, 2048}, {0, 0, 0, 1<<32 - 2}, {1, 0, 0, 2048}} {
		want := map[uint64]uint64{0: wasiBadF, 2048: wasiOK, 1<<32 - 2: wasiFault}[args[3]]
		if args[0] != stdin {
			want = wasiBadF
		}
		if errno := g.call("fd_read", args...); errno != want {
			t.Errorf("fd_read of %d: %d; want %d", args, errno, want)
		}
	}
}

// Every sixteenth call looks at the deadline, whatever the function does.
func TestWASI_CallsCount(t *testing.T) {
	t.Parallel()
	g := newWASIGuest(t, &logged{})
	g.instance.deadline.stop()
	for _, f := range wasi {
		if f.name == "proc_exit" {
			continue
		}
		stopped := 0
		for range 16 {
			if ended(func() { f.Call(g.instance.deadline, g.instance.module, make([]uint64, 16)) }) {
				stopped++
			}
		}
		if stopped == 0 {
			t.Errorf("%s was not stopped", f.name)
		}
	}
}

// ended reports whether a function was ended by the deadline.
func ended(f func()) (stopped bool) {
	defer func() {
		if cause := recover(); cause != nil {
			err, ok := cause.(abort)
			if stopped = true; !ok || !errors.Is(err, ErrTimeout) {
				panic(cause)
			}
		}
	}()
	f()
	return false
}
