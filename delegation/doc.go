// Package delegation makes and checks the tokens by which a program lets another one in as a guest
// of a lock that it holds.
//
// A request that holds a lock in one service calls another service, which guards the same key. The
// call carries a signed token that says which hold it belongs to. The other service checks the
// token and enters beside that hold, in place of waiting for its own caller. This package knows
// nothing of Redis or HTTP servers: core and guard use it.
//
// # Tokens
//
// A token is text of at most [MaxToken] bytes: "v1.", the payload in unpadded base64url, ".", and
// the signature in unpadded base64url. The signature is the HMAC-SHA256 of all bytes before the
// second dot. The payload is binary, with numbers in big-endian order:
//
//	offset  bytes    what
//	     0      8    random, so that no two tokens are the same
//	     8     16    Grant.Lock
//	    24      8    Grant.Fence, or of a semaphore Grant.Permits
//	    32      8    Grant.Expires, in milliseconds since 1970 UTC, from 1 to 2^63-1
//	    40      1    Grant.Kind: 1 lock, 2 fair, 3 fenced, 4 read, 5 write, 6 semaphore
//	    41      1    the length of the owner, from 1 to 128
//	    42      1    the length of the audience, from 1 to 64
//	    43    ...    Grant.Owner, then Grant.Audience
//
// With a Grant.Permit, the owner is that, "/", and Grant.Owner.
// Nothing follows the audience. A token is signed and not sealed: who has it can read it, and can
// use it at its audience until it expires. Several tokens in one [Header] are separated by ", ".
package delegation
