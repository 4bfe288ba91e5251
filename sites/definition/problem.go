package definition

import "muster/internal/yamlstrict"

// Pos is a position in a definition's file, Problem is one mistake in it, and Problems are all, as an error.
type (
	Pos      = yamlstrict.Pos
	Problem  = yamlstrict.Problem
	Problems = yamlstrict.Problems
)
