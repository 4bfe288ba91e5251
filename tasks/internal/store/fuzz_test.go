package store

import (
	"strings"
	"testing"

	"muster/tasks/tasktype"
)

// FuzzRecord wants a damaged record of a node to be read as far as possible.
func FuzzRecord(f *testing.F) {
	for _, s := range []string{"S|1|5|9|w|\"x\"", "F|1||9|w|{}", "k|2", "D|1|0|5|7|l", "T|1", "W|1|2|3", "P|1|0|5|w", "Q|||||", "Z"} {
		f.Add([]byte(s), int64(1700000000000))
	}
	f.Fuzz(func(t *testing.T, raw []byte, created int64) {
		r := ParseRecord(raw, created)
		if len(raw) > 0 && r.State != raw[0] || len(r.Body) > len(raw) {
			t.Errorf("%q is read as %+v", raw, r)
		}
	})
}

// FuzzIndex wants a cursor that is let through to be the one that this package writes for its place.
func FuzzIndex(f *testing.F) {
	for _, s := range []string{"1700000000000.abc", "1.~", ".", "-5.x", "+5.x", "9223372036854775808.x", "id 5 6 name with blanks", "id 9223372036854775807 1 n", "id 5 6 a → b\tnightly\tk=v\tbad\t=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parsePosition(s); err == nil {
			if again, err := parsePosition(p.String()); err != nil || again != p {
				t.Errorf("%q: decoded %+v, and %+v, %v after encoding again", s, p, again, err)
			}
		}
		if e, ok := parseIndexed(s, tasktype.WorkflowSucceeded, 1); ok && !strings.HasSuffix(s, e.Tasks) && !strings.Contains(s, e.Tasks+"\t") {
			t.Errorf("%q is read as %+v", s, e)
		}
	})
}
