package proxies

import (
	"encoding/json"
	"math"
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
