package jobs

import (
	"encoding/json"
	"testing"
)

// FuzzPlace wants a cursor that is let through to be written as one that means the same place.
func FuzzPlace(f *testing.F) {
	for _, s := range []string{"", "0", "17.YWJj", "17.YWI", ".", "a.b.c", "17.=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		at, err := parsePlace(cursor)
		if err != nil {
			if len(err.Error()) > 400 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if again, err := parsePlace(at.String()); err != nil || again != at {
			t.Errorf("%q: read %+v, and %+v, %v of %q", cursor, at, again, err, at.String())
		}
	})
}

// FuzzStoredItem wants a damaged item to be shown with its key, and its damage as an error.
func FuzzStoredItem(f *testing.F) {
	f.Add([]byte(`{"key":"a","text":"x","created":1700000000000}`), []byte(`{"text":"y","labels":{"a":true}}`))
	f.Add([]byte(`{"created":9223372036854775807}`), []byte(`null`))
	f.Add([]byte(`{"created":"x"}`), []byte(`{"citations":1}`))
	f.Add([]byte{0xff}, []byte{})
	f.Fuzz(func(t *testing.T, payload, patch []byte) {
		it, err := parseItem("job", itemID("key"), payload)
		if it.Key != "key" || it.JobID != "job" || it.ID == "" {
			t.Fatalf("%q is read as %+v", payload, it)
		}
		if err == nil {
			_ = it.apply(patch)
		}
		if _, err := json.Marshal(it); err != nil {
			t.Errorf("%q cannot be shown: %v", payload, err)
		}
	})
}
