//go:build !linux

package main

import (
	"errors"
	"net/netip"
	"os"
	"time"
)

type delayer struct{ addr netip.AddrPort }

func newDelayer(string, distance) (*delayer, error) {
	return nil, errors.New("the delaying proxy needs Linux: other systems have no epoll")
}

func (*delayer) run(*os.File) error { return nil }

func exactThread() error { return nil }

func sleepExactly(d time.Duration) error {
	time.Sleep(d)
	return nil
}
