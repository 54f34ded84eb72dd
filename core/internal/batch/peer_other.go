//go:build !unix

package batch

import "net"

// A peer is the other end of a connection. Whether it has closed the connection is found out by using
// it.
type peer struct{}

func (*peer) bind(net.Conn) {}

func (*peer) hasEnded() bool { return false }
