package retryafter

import (
	"strings"
	"testing"
	"time"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{"120", "1.5", " 7 ", "1e9", "NaN", "99999999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "-1", ".", "0x1p-2"} {
		f.Add(s, int64(1792567680), int64(900))
	}
	f.Fuzz(func(t *testing.T, value string, at, most int64) {
		limit := time.Duration(most&0xffffff) * time.Second
		now := time.Unix(at&0xffffffff, 0)
		d, ok := Parse(value, now, limit)
		if d < 0 || d > limit || !ok && d != 0 {
			t.Errorf("%q at %s with the limit %s: got %s, %t", value, now, limit, d, ok)
		}
		if again, same := Parse("\t"+strings.TrimSpace(value)+" ", now, limit); again != d || same != ok {
			t.Errorf("%q: got %s, %t, and %s, %t with blanks around it", value, d, ok, again, same)
		}
	})
}
