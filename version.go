package reqlock

// Version is the version of this module.
const Version = "0.2.0"

// Identity names reqlock and its version to Redis. Set it as the IdentitySuffix of your go-redis
// client. CLIENT LIST then shows lib-name=go-redis(reqlock-0.2.0,go1.26) from Redis 7.2 on. Clients
// that reqlock creates itself, as [github.com/reqlock/reqlock/embedded] does, have it.
const Identity = "reqlock-" + Version
