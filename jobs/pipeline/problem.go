package pipeline

import "muster/internal/yamlstrict"

// Problem is one mistake in a pipeline, and Problems are all, as an error. A file that cannot be read has no places.
type (
	Problem  = yamlstrict.Problem
	Problems = yamlstrict.Problems
)

// firstLine is the place of a mistake in a file as a whole.
var firstLine = yamlstrict.Pos{Line: 1, Col: 1}
