package delegation

import "errors"

// The errors of [Keys.Verify]. None has a part of the token in its text.
var (
	// ErrMalformed says that the text is no token of this version.
	ErrMalformed = errors.New("reqlock: delegation: the token is malformed")
	// ErrSignature says that none of the secrets has signed the token.
	ErrSignature = errors.New("reqlock: delegation: the token is signed with none of the secrets")
	// ErrAudience says that the token is for another service.
	ErrAudience = errors.New("reqlock: delegation: the token is for another service")
	// ErrExpired says that the token's hold has ended, and Skew is over, too.
	ErrExpired = errors.New("reqlock: delegation: the token has expired")
)
