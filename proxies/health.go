package proxies

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Health is what requests through a proxy have shown: to one site, or to all of them together.
type Health struct {
	OK       float64   `json:"ok"`                 // share of successes, the last ones weighing most
	Requests int       `json:"requests"`           // how many were counted
	Fails    float64   `json:"fails"`              // failures since the last success; a timeout is half of one
	LastOK   time.Time `json:"last_ok,omitzero"`   //
	LastFail time.Time `json:"last_fail,omitzero"` //
	Until    time.Time `json:"until,omitzero"`     // not used before
	Latency  float64   `json:"latency_ms"`         // moving mean of the time to the first byte
}

// unknownHealth is that of a proxy without a report.
func unknownHealth() Health { return Health{OK: 0.5} }

// mostHealth bounds stored numbers, the largest of which are times in ms, to what can be shown: the year 9892.
const mostHealth = 250e12

// parseHealth reads what report.lua writes.
func parseHealth(text string) (Health, error) {
	var n [8]float64 // the last, which only the script uses, may be missing
	i := 0
	for field := range strings.FieldsSeq(text) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i == len(n) || math.IsNaN(v) || math.Abs(v) > mostHealth {
			return unknownHealth(), fmt.Errorf("parse health %q", text)
		}
		n[i] = v
		i++
	}
	if i < len(n)-1 {
		return unknownHealth(), fmt.Errorf("parse health %q", text)
	}
	return Health{OK: n[0], Requests: int(n[1]), Fails: n[2], LastOK: unixMilli(n[3]), LastFail: unixMilli(n[4]), Until: unixMilli(n[5]), Latency: n[6]}, nil
}

func unixMilli(ms float64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms))
}

// score weighs a proxy: how often it works, more so when it did not long ago, and how fast it is.
// A site's own numbers count once there are five.
func score(all, site Health, checked float64, now time.Time) float64 {
	h := all
	if site.Requests >= 5 {
		h = site
	}
	latency := h.Latency
	if latency <= 0 {
		latency = checked
	}
	if latency <= 0 {
		latency = 2000
	}
	fresh := 0.0
	if !h.LastOK.IsZero() {
		fresh = math.Exp2(-now.Sub(h.LastOK).Minutes() / 30)
	}
	slowness := min(max(latency/2000, 0.25), 4)
	return (0.7*h.OK + 0.3*h.OK*min(fresh, 1)) / math.Sqrt(slowness)
}
