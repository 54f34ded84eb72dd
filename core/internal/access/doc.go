// Package access finds out what the Redis user of a client may do, without changing anything. It
// lists the commands that locks need, tries those of plain locks, and reads what the server says
// about the others.
package access
