package main

import "github.com/google/uuid"

// isRedisson reports whether a client, as core.ClientOf returns it, is one of Redisson: a UUID as
// Java writes it.
func isRedisson(client string) bool {
	id, err := uuid.Parse(client)
	return err == nil && id.String() == client
}
