package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports come from below the ranges from which Linux (32768 up) and macOS (49152 up) take the local ends of outgoing
// connections. A port from there could be taken by any client between Kill and Restart, even by a client that dials the
// killed server itself.
const (
	lowestPort  = 10240
	highestPort = 32767
)

// claim is the right to use a TCP port of the loopback interface. A UDP socket of the same number stands for it: no other
// test process can have it as well, it outlives the death of the server on that port, and the kernel takes it back when
// this process ends.
type claim struct {
	port int
	mark net.PacketConn
}

// claimPort claims a port on which nobody listens at the moment.
func claimPort() (claim, error) {
	var err error
	for range 100 {
		var c claim
		if c, err = tryPort(lowestPort + rand.IntN(highestPort-lowestPort+1)); err == nil {
			return c, nil
		}
	}
	return claim{}, fmt.Errorf("redistest: no free port on 127.0.0.1 between %d and %d: %w", lowestPort, highestPort, err)
}

func tryPort(port int) (claim, error) {
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	mark, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return claim{}, err
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		_ = mark.Close()
		return claim{}, err
	}
	_ = l.Close()
	return claim{port: port, mark: mark}, nil
}

func (c claim) release() {
	_ = c.mark.Close()
}
