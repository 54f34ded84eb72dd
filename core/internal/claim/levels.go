package claim

// Levels counts the entries into a hold. The sum is the hold count. Without levels, Redis has no
// hold.
type Levels struct{ Exclusive, Shared int32 }

// Total returns the hold count.
func (n Levels) Total() int { return int(n.Exclusive + n.Shared) }

// Plus returns n with one more level.
func (n Levels) Plus(shared bool) Levels {
	if shared {
		n.Shared++
	} else {
		n.Exclusive++
	}
	return n
}

// Minus returns n with one level less.
func (n Levels) Minus(shared bool) Levels {
	if shared {
		n.Shared--
	} else {
		n.Exclusive--
	}
	return n
}

// min returns the levels that both have.
func (n Levels) min(other Levels) Levels {
	return Levels{min(n.Exclusive, other.Exclusive), min(n.Shared, other.Shared)}
}
