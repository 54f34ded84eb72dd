package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are below the ephemeral ranges of Linux (32768 up) and macOS (49152 up). Any client could
// get an ephemeral port between Kill and Restart, even a client that dials the killed server.
const (
	lowestPort  = 10240
	highestPort = 32767
)

// claim reserves a TCP port of the loopback interface by holding the UDP socket of the same number.
// No other test process can hold it too, it survives a crash of the server on that port, and the
// kernel frees it when this process ends.
type claim struct {
	port int
	mark net.PacketConn
}

// claimPort claims a port without a listener.
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
