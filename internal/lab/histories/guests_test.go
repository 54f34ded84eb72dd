package histories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/reqlock/reqlock/core"
)

// audience is who may use the tokens of holders: all processes.
const audience = "histories"

// fresh is how old a token may be that certainly verifies: less than the skew that it bears.
const fresh = 3 * time.Second

// An invitation is what a holder tells other processes. Each invitation is a file.
type invitation struct {
	Name, Token string
	// Owner is that of the holder's Call.
	Owner   string
	Written int64
}

// invite lets others in as guests of a lease, now or when it is over.
func (c *caller) invite(call Call, lease *core.Lease) error {
	token, err := lease.Delegate(audience)
	if lease.Err() != nil { // There is nothing to delegate.
		return nil
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(invitation{Name: call.Name, Token: token, Owner: call.Owner, Written: now()})
	if err != nil {
		return err
	}
	path := filepath.Join(c.site.Tokens, fmt.Sprintf("%s-%d", call.Owner, c.n))
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// visitAsGuest enters the hold of another caller, usually of another process. If it finds no fresh token
// for the name, it takes the lock, and invites others.
func (c *caller) visitAsGuest(ctx context.Context, call Call, opts core.AcquireOptions) {
	in, ok, err := c.invited(call.Name)
	if err != nil {
		c.fail(err)
	}
	if !ok {
		c.enter(ctx, Name{Kind: call.Kind, Name: call.Name}, call, opts, 1)
		return
	}
	call.Owner, call.Wait, opts.WaitTime = in.Owner, 0, 0
	c.begin(&call)
	lease, err := c.clients.locks[0].Lock(call.Name).Acquire(core.WithDelegation(ctx, in.Token), opts)
	if err == nil && now()-in.Written > int64(fresh) { // then it may be no guest
		_ = lease.Release(context.Background()) // If it fails, the lock is unclaimed until the lease ends.
		err = errors.New("the token may have been too old")
	}
	if !c.acquired(&call, lease, err) {
		return
	}
	c.release(call, c.keep(lease), lease.Release)
}

// invited returns the latest invitation for a name, if it is fresh, and removes old ones.
func (c *caller) invited(name string) (latest invitation, ok bool, err error) {
	files, err := os.ReadDir(c.site.Tokens)
	if err != nil {
		return latest, false, err
	}
	for _, file := range files {
		path := filepath.Join(c.site.Tokens, file.Name())
		if filepath.Ext(path) == ".new" {
			continue
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) { // another caller has removed it
			continue
		}
		var in invitation
		if err == nil {
			err = json.Unmarshal(text, &in)
		}
		switch {
		case err != nil:
			return latest, false, err
		case now()-in.Written > int64(fresh):
			_ = os.Remove(path) // Another caller may have removed it.
		case in.Name == name && in.Written > latest.Written:
			latest, ok = in, true
		}
	}
	return latest, ok, nil
}
