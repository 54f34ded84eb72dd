package meter

// Limits bound what a module may contain. They are far above what compilers emit, and low enough
// that an accepted module is compiled in seconds.
type Limits struct {
	// File is in bytes.
	File int
	// Types counts types of functions.
	Types int
	// Values bounds the parameters of one type, and its results.
	Values  int
	Imports int
	// Functions counts functions with code.
	Functions int
	Exports   int
	Globals   int
	Tables    int
	// TableSize counts the entries of all tables. Beyond it, table.grow fails.
	TableSize int
	// Elements counts the entries of all element segments.
	Elements int
	// Segments bounds the element segments, and the data segments.
	Segments int
	// Body is the size of one function in bytes.
	Body int
	// Locals counts the locals of one function, with its parameters.
	Locals int
	// Nesting is how many blocks may be in each other.
	Nesting int
	// Targets counts the targets of one br_table.
	Targets int
	// FunctionWork and Work bound how long the compiler needs for one function, and for all, in µs
	// on a machine of today. That is not proportional to their size.
	FunctionWork, Work int
}

// DefaultLimits are the limits for a file of at most maxFile bytes.
func DefaultLimits(maxFile int) Limits {
	return Limits{
		File:      maxFile,
		Types:     5000,
		Values:    100,
		Imports:   1000,
		Functions: 100_000,
		Exports:   10_000,
		Globals:   10_000,
		Tables:    16,
		TableSize: 100_000,
		Elements:  200_000,
		Segments:  100_000, // which is how many Go makes
		Body:      256 << 10,
		Locals:    5000,
		Nesting:   2000,
		Targets:   5000,

		FunctionWork: 1_000_000,
		Work:         40_000_000,
	}
}
