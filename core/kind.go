package core

import (
	"time"

	"github.com/reqlock/reqlock/core/internal/lua"
	"github.com/reqlock/reqlock/core/internal/wire"
)

// A kind is what sets one kind of lock apart from the others; the engine is the same for all.
type kind struct {
	name    string
	channel func(key string) string
	acquire func(key, owner string, lease time.Duration) lua.Call
}

var plainLock = &kind{name: "lock", channel: wire.LockChannel, acquire: lua.Acquire}

// announcement is what a release of a lock of this kind publishes.
func (k *kind) announcement(key string, mode PublishMode) lua.Announcement {
	return lua.Announcement{Channel: k.channel(key), Message: wire.Unlocked, Commands: mode.publishCommands()}
}
