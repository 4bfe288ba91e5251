package store

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzRequest checks that the directory of an accepted request is below the records directory.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"site":"shop","out_dir":"/x"}`), "scrape_shop_1")
	f.Add([]byte(`{"site":"../../etc"}`), "a")
	f.Add([]byte(`{"site":"a","resume":"../x"}`), "a")
	f.Add([]byte(`{"site":""}`), "..")
	f.Fuzz(func(t *testing.T, raw []byte, id string) {
		var r Request
		if json.Unmarshal(raw, &r) != nil || r.CheckNames(id) != nil {
			return
		}
		r.OutDir = "/records"
		if dir := r.Dir(id); !strings.HasPrefix(dir, filepath.Clean(r.OutDir)+"/") || strings.Contains(dir, "..") && !strings.Contains(r.Site, "..") {
			t.Errorf("%q of %q is written to %s", raw, id, dir)
		}
	})
}
