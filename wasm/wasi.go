package wasm

import (
	"crypto/rand"
	"time"

	"github.com/tetratelabs/wazero/sys"
)

const moduleWASI = "wasi_snapshot_preview1"

// wasi lists all functions of WASI preview 1, because wasi-libc and Rust's crate wasi declare all
// of them, and so does the runtime of Go with most. A guest has three descriptors, standard input,
// output and error, which stay open. There are no files and no sockets.
//
// A guest pays for the call of a host function, not for what it does. So each of these must work
// for microseconds only, or look at the deadline in between. Sixteen calls that each copy a path of
// 15 MiB, only to find that there are no files, take a second. What bounds each:
//
//   - always and onStdio read one argument, and nothing of the guest's memory.
//   - The fixed ones read and write at most 64 bytes at places the guest chooses.
//   - The measured ones work on as much memory as the guest asks for: their comments say how.
var wasi = hostModule{
	// Fixed: no arguments and no environment, so there is nothing to write but two zeros.
	{"args_get", types(i32, i32), types(i32), always(wasiOK)},
	{"args_sizes_get", types(i32, i32), types(i32), noStrings},
	{"environ_get", types(i32, i32), types(i32), always(wasiOK)},
	{"environ_sizes_get", types(i32, i32), types(i32), noStrings},

	// Fixed: a number of 8 bytes.
	{"clock_res_get", types(i32, i32), types(i32), clockResGet},
	{"clock_time_get", types(i32, i64, i32), types(i32), clockTimeGet},

	// Fixed: a structure of 24 or 64 bytes.
	{"fd_fdstat_get", types(i32, i32), types(i32), fdFdstatGet},
	{"fd_filestat_get", types(i32, i32), types(i32), fdFilestatGet},

	// Measured.
	{"fd_write", types(i32, i32, i32, i32), types(i32), fdWrite},
	{"poll_oneoff", types(i32, i32, i32, i32), types(i32), pollOneoff},
	{"random_get", types(i32, i32), types(i32), randomGet},

	// Fixed: standard input has ended, so the buffers do not matter and a zero is written.
	{"fd_read", types(i32, i32, i32, i32), types(i32), fdRead},

	// What the three descriptors answer is what a pipe answers, or what does no harm.
	{"fd_advise", types(i32, i64, i64, i32), types(i32), onStdio(wasiOK)},
	{"fd_allocate", types(i32, i64, i64), types(i32), onStdio(wasiSpipe)},
	{"fd_close", types(i32), types(i32), onStdio(wasiOK)},
	{"fd_datasync", types(i32), types(i32), onStdio(wasiOK)},
	{"fd_fdstat_set_flags", types(i32, i32), types(i32), onStdio(wasiOK)}, // nothing blocks anyway
	{"fd_fdstat_set_rights", types(i32, i64, i64), types(i32), always(wasiNosys)},
	{"fd_filestat_set_size", types(i32, i64), types(i32), onStdio(wasiInval)},
	{"fd_filestat_set_times", types(i32, i64, i64, i32), types(i32), onStdio(wasiNosys)},
	{"fd_pread", types(i32, i32, i32, i64, i32), types(i32), onStdio(wasiSpipe)},
	{"fd_pwrite", types(i32, i32, i32, i64, i32), types(i32), onStdio(wasiSpipe)},
	{"fd_readdir", types(i32, i32, i32, i64, i32), types(i32), onStdio(wasiNotdir)},
	{"fd_renumber", types(i32, i32), types(i32), onStdio(wasiNotsup)},
	{"fd_seek", types(i32, i64, i32, i32), types(i32), onStdio(wasiSpipe)},
	{"fd_sync", types(i32), types(i32), onStdio(wasiOK)},
	{"fd_tell", types(i32, i32), types(i32), onStdio(wasiSpipe)},

	// No descriptor is a directory. A runtime that looks for directories stops at this error.
	{"fd_prestat_get", types(i32, i32), types(i32), always(wasiBadF)},
	{"fd_prestat_dir_name", types(i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_create_directory", types(i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_filestat_get", types(i32, i32, i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_filestat_set_times", types(i32, i32, i32, i32, i64, i64, i32), types(i32), always(wasiBadF)},
	{"path_link", types(i32, i32, i32, i32, i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_open", types(i32, i32, i32, i32, i32, i64, i64, i32, i32), types(i32), always(wasiBadF)},
	{"path_readlink", types(i32, i32, i32, i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_remove_directory", types(i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_rename", types(i32, i32, i32, i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_symlink", types(i32, i32, i32, i32, i32), types(i32), always(wasiBadF)},
	{"path_unlink_file", types(i32, i32, i32), types(i32), always(wasiBadF)},

	{"sock_accept", types(i32, i32, i32), types(i32), onStdio(wasiNotsock)},
	{"sock_recv", types(i32, i32, i32, i32, i32, i32), types(i32), onStdio(wasiNotsock)},
	{"sock_send", types(i32, i32, i32, i32, i32), types(i32), onStdio(wasiNotsock)},
	{"sock_shutdown", types(i32, i32), types(i32), onStdio(wasiNotsock)},

	{"proc_exit", types(i32), nil, procExit},
	{"proc_raise", types(i32), types(i32), always(wasiNosys)},
	{"sched_yield", nil, types(i32), always(wasiOK)}, // the next check yields
}

// Errors of WASI.
const (
	wasiOK      = 0
	wasiBadF    = 8
	wasiFault   = 21
	wasiInval   = 28
	wasiNosys   = 52
	wasiNotdir  = 54
	wasiNotsock = 57
	wasiNotsup  = 58
	wasiSpipe   = 70
)

const (
	stdin = iota
	stdout
	stderr
)

// always returns a function that has the same result for all arguments.
func always(errno uint64) func(*instance, memory, []uint64) {
	return func(_ *instance, _ memory, s []uint64) { s[0] = errno }
}

// onStdio returns a function on the descriptor that is its first argument. errno is the result for
// those that are open.
func onStdio(errno uint64) func(*instance, memory, []uint64) {
	return func(_ *instance, _ memory, s []uint64) {
		if uint32(s[0]) > stderr {
			s[0] = wasiBadF
			return
		}
		s[0] = errno
	}
}

// wrote is the result of a function that has written to the guest's memory, if it could.
func wrote(ok bool) uint64 {
	if !ok {
		return wasiFault
	}
	return wasiOK
}

// noStrings implements args_sizes_get and environ_sizes_get.
func noStrings(_ *instance, mem memory, s []uint64) {
	s[0] = wrote(mem.WriteUint32Le(uint32(s[0]), 0) && mem.WriteUint32Le(uint32(s[1]), 0))
}

const (
	clockReal      = 0
	clockMonotonic = 1
)

func clockResGet(_ *instance, mem memory, s []uint64) {
	resolution := time.Nanosecond
	switch uint32(s[0]) {
	case clockReal:
		resolution = time.Microsecond
	case clockMonotonic:
	default:
		s[0] = wasiInval
		return
	}
	s[0] = wrote(mem.WriteUint64Le(uint32(s[1]), uint64(resolution)))
}

func clockTimeGet(_ *instance, mem memory, s []uint64) {
	var now int64
	switch uint32(s[0]) {
	case clockReal:
		now = time.Now().UnixNano()
	case clockMonotonic:
		now = int64(time.Since(processBegan))
	default:
		s[0] = wasiInval
		return
	}
	s[0] = wrote(mem.WriteUint64Le(uint32(s[2]), uint64(now)))
}

// A device is what the three descriptors are, as in wazero.
const (
	device       = 1
	deviceRights = "\xff\x01\xe0\x08" // read, write and so on
)

func fdFdstatGet(_ *instance, mem memory, s []uint64) {
	if uint32(s[0]) > stderr {
		s[0] = wasiBadF
		return
	}
	stat := [24]byte{0: device}
	copy(stat[8:], deviceRights)
	s[0] = wrote(mem.Write(uint32(s[1]), stat[:]))
}

func fdFilestatGet(_ *instance, mem memory, s []uint64) {
	if uint32(s[0]) > stderr {
		s[0] = wasiBadF
		return
	}
	stat := [64]byte{16: device, 24: 1} // The file has one link.
	s[0] = wrote(mem.Write(uint32(s[1]), stat[:]))
}

// fdWrite implements fd_write. The guest chooses how many buffers there are, and how long each is:
// output.Write looks at the deadline for each, even if it is empty, and logs only its beginning.
func fdWrite(i *instance, mem memory, s []uint64) {
	var out *output
	switch uint32(s[0]) {
	case stdout:
		out = &i.stdout
	case stderr:
		out = &i.stderr
	default:
		s[0] = wasiBadF
		return
	}
	var written uint32
	for list, n := uint32(s[1]), uint32(s[2]); n > 0; list, n = list+8, n-1 {
		at, _ := mem.ReadUint32Le(list)
		length, ok := mem.ReadUint32Le(list + 4)
		b, fits := mem.Read(at, length)
		if !ok || !fits {
			s[0] = wasiFault
			return
		}
		out.write(b)
		written += length
	}
	s[0] = wrote(mem.WriteUint32Le(uint32(s[3]), written))
}

// fdRead implements fd_read. Standard input is empty, and there are no files.
func fdRead(_ *instance, mem memory, s []uint64) {
	if uint32(s[0]) != stdin {
		s[0] = wasiBadF
		return
	}
	s[0] = wrote(mem.WriteUint32Le(uint32(s[3]), 0))
}

const (
	maxSubscriptions = 1024
	subscriptionSize = 48
	eventSize        = 32

	eventClock = 0
	eventWrite = 2
)

// pollOneoff implements poll_oneoff. It looks at the deadline before a long list, and refuses one
// of more than maxSubscriptions. Nothing blocks: each clock has expired, standard output can be
// written, and standard input has ended.
func pollOneoff(_ *instance, mem memory, s []uint64) {
	n := uint32(s[2])
	if n == 0 || n > maxSubscriptions {
		s[0] = wasiInval
		return
	}
	if n*subscriptionSize >= checkFrom {
		mem.deadline.check()
	}
	in, ok := mem.Read(uint32(s[0]), n*subscriptionSize)
	out, fits := mem.Read(uint32(s[1]), n*eventSize)
	if !ok || !fits || !mem.WriteUint32Le(uint32(s[3]), n) {
		s[0] = wasiFault
		return
	}
	for at := uint32(s[0]) + 16; len(in) > 0; at, in, out = at+subscriptionSize, in[subscriptionSize:], out[eventSize:] {
		var event [eventSize]byte
		copy(event[:8], in[:8]) // the guest's data
		kind := in[8]
		fd, _ := mem.ReadUint32Le(at)
		switch {
		case kind > eventWrite:
			s[0] = wasiInval
			return
		case kind != eventClock && fd > stderr:
			event[8] = wasiBadF
		}
		event[10] = kind
		copy(out, event[:])
	}
	s[0] = wasiOK
}

const randomPiece = 16 << 10

// randomGet implements random_get. It looks at the deadline before each piece but a short one, as
// the guest chooses how much it wants.
func randomGet(_ *instance, mem memory, s []uint64) {
	b, ok := mem.Read(uint32(s[0]), uint32(s[1]))
	if !ok {
		s[0] = wasiFault
		return
	}
	for len(b) > 0 {
		if len(b) >= checkFrom {
			mem.deadline.check()
		}
		n, _ := rand.Read(b[:min(len(b), randomPiece)]) // never fails
		b = b[n:]
	}
	s[0] = wasiOK
}

// procExit implements proc_exit. The instance is closed after the error.
func procExit(_ *instance, _ memory, s []uint64) { panic(sys.NewExitError(uint32(s[0]))) }
