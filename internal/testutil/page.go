package testutil

import (
	"bytes"
	"os"
	"testing"
)

// Page fails the test unless the content of the generated file equals page. With write, it writes the file; generate is the command
// that does so.
func Page(t testing.TB, file string, page []byte, write bool, generate string) {
	t.Helper()
	if write {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page) {
		t.Errorf("%s is out of date: run %s", file, generate)
	}
}
