// Package inspect shows who holds and who awaits the locks on a Redis.
package inspect
