package client

import "muster/internal/httpproblem"

// Problem is the response to a request that failed, as defined by RFC 9457, with a code.
type Problem = httpproblem.Problem

// ProblemField is an invalid part of a request.
type ProblemField = httpproblem.Field
