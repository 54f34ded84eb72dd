package wasm

import endian "encoding/binary"

// The guest's memory is little-endian.

func load32(b []byte, at int) uint32     { return endian.LittleEndian.Uint32(b[at:]) }
func load64(b []byte, at int) uint64     { return endian.LittleEndian.Uint64(b[at:]) }
func store32(b []byte, at int, v uint32) { endian.LittleEndian.PutUint32(b[at:], v) }
func store64(b []byte, at int, v uint64) { endian.LittleEndian.PutUint64(b[at:], v) }
