package definition

import "muster/internal/yamlstrict"

// Pos is a position in a definition file. A Problem is one mistake in the file. Problems is an error with all mistakes.
type (
	Pos      = yamlstrict.Pos
	Problem  = yamlstrict.Problem
	Problems = yamlstrict.Problems
)
