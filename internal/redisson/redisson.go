// Package redisson knows how Redisson names its clients.
package redisson

import "github.com/google/uuid"

// IsClient reports whether a client, as core.ClientOf returns it, is one of Redisson: a UUID as
// Java writes it.
func IsClient(client string) bool {
	id, err := uuid.Parse(client)
	return err == nil && id.String() == client
}
