package event

import "testing"

// FuzzPosition wants an id that is let through to be a place in a stream that is written as one.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"1735689600000-0", "5", "-", "18446744073709551616-1", "1-1-1", "+1-0", " 1"} {
		f.Add(s, "2-3")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p, err := parse(a)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if again, err := parse(p.String()); err != nil || again != p {
			t.Errorf("%q: decoded %v, and %v, %v after encoding again", a, p, again, err)
		}
		if q, err := parse(b); err == nil && p.before(q) && q.before(p) {
			t.Errorf("%v and %v are before each other", p, q)
		}
	})
}
