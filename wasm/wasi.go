package wasm

import (
	"context"
	"crypto/rand"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

const moduleWASI = "wasi_snapshot_preview1"

// instantiateWASI provides wazero's WASI, except for functions that could work for long on a list
// of the guest's.
func instantiateWASI(ctx context.Context, r wazero.Runtime) error {
	builder := r.NewHostModuleBuilder(moduleWASI)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(builder)
	for _, f := range []hostFunction{
		{"fd_read", types(i32, i32, i32, i32), types(i32), fdRead},
		{"fd_pread", types(i32, i32, i32, i64, i32), types(i32), fdPread},
		{"poll_oneoff", types(i32, i32, i32, i32), types(i32), pollOneoff},
	} {
		builder.NewFunctionBuilder().WithGoModuleFunction(f, f.params, f.results).Export(f.name)
	}
	_, err := builder.Instantiate(ctx)
	return err
}

// Errors of WASI.
const (
	wasiOK    = 0
	wasiBadF  = 8
	wasiFault = 21
	wasiInval = 28
	wasiSpipe = 70
)

// fdRead implements fd_read. Standard input is empty, and there are no files.
func fdRead(_ *instance, mem memory, s []uint64) {
	switch {
	case uint32(s[0]) != 0:
		s[0] = wasiBadF
	case !mem.WriteUint32Le(uint32(s[3]), 0):
		s[0] = wasiFault
	default:
		s[0] = wasiOK
	}
}

func fdPread(_ *instance, _ memory, s []uint64) {
	if uint32(s[0]) != 0 {
		s[0] = wasiBadF
		return
	}
	s[0] = wasiSpipe
}

const (
	maxSubscriptions = 1024
	subscriptionSize = 48
	eventSize        = 32

	eventClock = 0
	eventWrite = 2
)

// pollOneoff implements poll_oneoff. Nothing blocks: each clock has expired, standard output can be
// written, and standard input has ended.
func pollOneoff(_ *instance, mem memory, s []uint64) {
	n := uint32(s[2])
	if n == 0 || n > maxSubscriptions {
		s[0] = wasiInval
		return
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
		file, _ := mem.ReadUint32Le(at)
		switch {
		case kind > eventWrite:
			s[0] = wasiInval
			return
		case kind != eventClock && file > 2:
			event[8] = wasiBadF
		}
		event[10] = kind
		copy(out, event[:])
	}
	s[0] = wasiOK
}

// randomness reads in pieces, so that a guest that asks for much of it can be stopped.
type randomness struct{ deadline *deadline }

const randomPiece = 16 << 10

func (r randomness) Read(p []byte) (int, error) {
	if len(p) > randomPiece {
		p = p[:randomPiece]
		r.deadline.check()
	}
	return rand.Read(p)
}
