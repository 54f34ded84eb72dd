package wasm

import (
	"context"

	"github.com/tetratelabs/wazero/experimental"
)

// A linearMemory is a guest's memory. It grows in pieces, so that neither a deadline nor the
// garbage collector waits for a copy of all of it.
type linearMemory struct {
	deadline *deadline
	max      uint64
	b        []byte
}

const memoryPiece = 1 << 20

// withMemory makes an instance that is created with the context use a linearMemory.
func (i *instance) withMemory(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, limit uint64) experimental.LinearMemory {
		return &linearMemory{deadline: i.deadline, max: limit}
	}))
}

// Reallocate implements experimental.LinearMemory. It returns nil, so that memory.grow fails, if
// the deadline passes meanwhile.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size <= uint64(cap(m.b)) {
		m.b = m.b[:size]
		return m.b
	}
	grown := make([]byte, size, min(max(size, 2*uint64(cap(m.b))), m.max))
	for done := 0; done < len(m.b); done += memoryPiece {
		if !m.deadline.look() {
			return nil
		}
		copy(grown[done:], m.b[done:min(done+memoryPiece, len(m.b))])
	}
	m.b = grown
	return m.b
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() { m.b = nil }
