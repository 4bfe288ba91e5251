// Package errtree lists all errors that an error wraps, as errors.Is and errors.As find them, but also returns if an
// error wraps itself.
package errtree

// most is how many errors of a tree are read at most.
const most = 200_000

// All returns err and the errors it wraps, the outermost first: those with fewer errors around them come before those
// with more, and errors that were joined come in their order. Only the first 200,000 are returned. It calls methods
// of err, and does not recover from their panics.
func All(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	add := func(err error) {
		if err != nil && len(all) < most {
			all = append(all, err)
		}
	}
	for i := 0; i < len(all) && len(all) < most; i++ {
		switch e := all[i].(type) {
		case interface{ Unwrap() error }:
			add(e.Unwrap())
		case interface{ Unwrap() []error }:
			inner := e.Unwrap()
			for _, err := range inner[:min(len(inner), most)] {
				add(err)
			}
		}
	}
	return all
}

// Is reports whether one of all is target, or its method Is returns true for target. The type of target must be
// comparable.
func Is(all []error, target error) bool {
	for _, err := range all {
		if err == target {
			return true
		}
		if e, ok := err.(interface{ Is(error) bool }); ok && e.Is(target) {
			return true
		}
	}
	return false
}
