package meter

// Limits bound what a module may contain. They are far above what compilers emit, and low enough
// that an accepted module is compiled in seconds.
type Limits struct {
	File      int // bytes of the file
	Types     int // function types
	Values    int // parameters, or results, of one type
	Imports   int
	Functions int // with code
	Exports   int
	Globals   int
	Tables    int
	TableSize int // entries of all tables; table.grow fails beyond it
	Elements  int // entries of all element segments
	Segments  int // element segments, or data segments
	Body      int // bytes of one function
	Locals    int // of one function, parameters included
	Nesting   int // blocks in each other
	Targets   int // of one br_table
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
