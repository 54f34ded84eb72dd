package guard

// RefusedAtOnce makes the first refusal of a series news.
func RefusedAtOnce() { refusedFor = 0 }
