package secret

import (
	"strings"
	"testing"
)

// FuzzExpand checks that text outside of references is unchanged, and that errors contain no secret.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${A}", "x${A}y${B}", "${", "${}", "$${A}", "${A", "${A}${", "}${A}", "${${A}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file:") || strings.Contains(text, "s3cr3t") {
			return // do not read files of this machine
		}
		got, err := Expand(text, func(name string) (string, bool) { return "s3cr3t${A}", name != "B" })
		if err != nil {
			if got != "" || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%q: got %q, %v", text, got, err)
			}
			return
		}
		if !Refers(text) && got != text {
			t.Errorf("%q has no reference and becomes %q", text, got)
		}
		if n := strings.Count(got, "s3cr3t"); n > strings.Count(text, "${") { // fewer if a name contains ${
			t.Errorf("%q has %d secrets: %q", text, n, got)
		}
	})
}
