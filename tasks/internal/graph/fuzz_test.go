package graph

import "testing"

// FuzzID wants an id that is let through to be written as one that is read as the same.
func FuzzID(f *testing.F) {
	for _, s := range []string{"0", "3.2", "1:2.3", "1.0:2:3.4", "-1", "+1", "01", ".", ":", "9223372036854775808", "1.-2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Errorf("%q: read %+v, and %+v, %v of %q", s, id, again, err, id.String())
		}
	})
}
