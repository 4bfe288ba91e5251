package proxies

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Health is the history of requests through a proxy, to one site or to all sites.
type Health struct {
	OK       float64   `json:"ok"`                 // exponentially weighted share of successes
	Requests int       `json:"requests"`           // number of requests
	Fails    float64   `json:"fails"`              // consecutive failures; a timeout counts half
	LastOK   time.Time `json:"last_ok,omitzero"`   //
	LastFail time.Time `json:"last_fail,omitzero"` //
	Until    time.Time `json:"until,omitzero"`     // suspended until
	Latency  float64   `json:"latency_ms"`         // moving average of the time to the first byte
}

// unknownHealth returns the health of a proxy without reports.
func unknownHealth() Health { return Health{OK: 0.5} }

// maxHealth limits stored numbers, the largest of which are times in milliseconds, to the range of time.Time in JSON:
// the year 9892.
const maxHealth = 250e12

// parseHealth parses the format of report.lua.
func parseHealth(text string) (Health, error) {
	var n [8]float64 // the last number is optional and used by the script only
	i := 0
	for field := range strings.FieldsSeq(text) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || i == len(n) || math.IsNaN(v) || math.Abs(v) > maxHealth {
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

// score returns the weight of a proxy: its success rate, adjusted for recent failures and latency. The health of a
// site is used if it has at least five requests.
func score(all, site Health, checked float64, now time.Time) float64 {
	h := all
	if site.Requests >= 5 {
		h = site
	}
	latency := cmp.Or(max(h.Latency, 0), max(checked, 0), 2000)
	fresh := 0.0
	if !h.LastOK.IsZero() {
		fresh = math.Exp2(-now.Sub(h.LastOK).Minutes() / 30)
	}
	slowness := min(max(latency/2000, 0.25), 4)
	return (0.7*h.OK + 0.3*h.OK*min(fresh, 1)) / math.Sqrt(slowness)
}
