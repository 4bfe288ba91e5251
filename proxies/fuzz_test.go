package proxies

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzHealth checks that stored health is parsed to numbers that are valid in JSON, or rejected.
func FuzzHealth(f *testing.F) {
	for _, s := range []string{"0.5 3 1 1700000000000 0 0 120.5 9", "NaN 1 1 1 1 1 1", "1e308 1e308 Inf 1e300 -1 -Inf 0", "1 2", "0x1p4 1 1 1 1 1 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHealth(text)
		if err != nil {
			return
		}
		for _, v := range []float64{h.OK, h.Fails, h.Latency} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%q is read as %+v", text, h)
			}
		}
		if _, err := json.Marshal(h); err != nil {
			t.Errorf("%q cannot be encoded: %v", text, err)
		}
	})
}

// FuzzExport checks that an export of another host is parsed or rejected, and that names cannot inject lines, fields
// or words into any format.
func FuzzExport(f *testing.F) {
	f.Add([]byte(`[{"protocol": "socks5", "host": "192.0.2.1", "port": 1080, "username": "u", "password": "p"}]`))
	f.Add([]byte(`[{"protocol": "http", "host": "a\nb", "port": 1}, {}]`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`[{"protocol":"http","host":"\"];alert(1);//","port":80}]`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(dir, ExportJSON)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := ReadExport(file)
		if err != nil {
			return
		}
		for _, form := range Formats {
			out, err := form.encode(list)
			if err != nil {
				t.Errorf("%s: %v", form.Name, err)
				continue
			}
			if form.Name == "text" && strings.Count(string(out), "\n") != len(list) {
				t.Errorf("%d proxies are written as %q", len(list), out)
			}
		}
	})
}
