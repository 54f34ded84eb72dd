package claim

// Counts is how often a hold is entered. The sum is the hold count. Without levels, Redis has no hold.
type Counts struct{ Exclusive, Shared int32 }

// Total returns the hold count.
func (n Counts) Total() int { return int(n.Exclusive + n.Shared) }

// Plus returns n with one more level.
func (n Counts) Plus(shared bool) Counts {
	if shared {
		n.Shared++
	} else {
		n.Exclusive++
	}
	return n
}

// Minus returns n with one level less.
func (n Counts) Minus(shared bool) Counts {
	if shared {
		n.Shared--
	} else {
		n.Exclusive--
	}
	return n
}

// min returns the levels that both have.
func (n Counts) min(other Counts) Counts {
	return Counts{min(n.Exclusive, other.Exclusive), min(n.Shared, other.Shared)}
}
