//go:build !unix

package testutil

import "testing"

// Postgres skips the test.
func Postgres(t testing.TB) string {
	t.Skip("NOT COVERED:", t.Name(), "needs PostgreSQL on Unix")
	return ""
}
