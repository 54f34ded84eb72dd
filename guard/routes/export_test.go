package routes

import "time"

// CheckEvery makes Watch check the file more often, for tests that wait for it.
func (o *Options) CheckEvery(interval time.Duration) { o.interval = interval }
