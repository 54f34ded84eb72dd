// Command reqlock shows and frees the locks on a Redis, runs commands under them, and checks whether
// that Redis is fit for locks. docs/guides/commands.md and docs/guides/run.md describe it.
//
//	reqlock ls [PREFIX]      list locks: who holds them, for how long, who waits
//	reqlock show NAME        show one lock
//	reqlock watch [PREFIX]   show locks live
//	reqlock unlock NAME      free a lock
//	reqlock run NAME -- COMMAND
//	                         run a command under a lock
//	reqlock doctor           check Redis
//	reqlock bench            measure a round trip
//	reqlock completion SHELL print a script that completes command lines
//	reqlock version          print the version
//
// It exits with 0 if it has done what it was asked, 1 if a lock was not found or not held, 2 if the
// command line is wrong, 3 if Redis fails, and 130 if it was interrupted. reqlock run exits with the
// code of its command, or with one that its help lists.
package main
