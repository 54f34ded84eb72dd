// Command reqlock shows and frees the locks on a Redis, and checks whether that Redis is fit for
// locks. docs/guides/commands.md describes it.
//
//	reqlock ls [PREFIX]      list locks: who holds them, for how long, who waits
//	reqlock show NAME        show one lock
//	reqlock watch [PREFIX]   show locks live
//	reqlock unlock NAME      free a lock
//	reqlock doctor           check Redis
//	reqlock bench            measure a round trip
//	reqlock version          print the version
//
// It exits with 0 if it has done what it was asked, 1 if a lock was not found or not held, 2 if the
// command line is wrong, 3 if Redis fails, and 130 if it was interrupted.
package main
