package testutil

import "testing"

// Ok ends the test if err is not nil.
func Ok(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Must returns the value of a call, as in testutil.Must(os.ReadFile(path))(t), which ends the test if the call returns an error.
func Must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		Ok(tb, err)
		return value
	}
}
