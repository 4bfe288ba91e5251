// Package retryafter reads the header Retry-After of HTTP answers.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse returns how long after now the value of a Retry-After allows the next request: from seconds, with decimals or
// without, or from an HTTP date. The result is never negative and at most limit. ok reports whether the value is
// either of the two.
func Parse(value string, now time.Time, limit time.Duration) (d time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if isNumber(value) {
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || seconds >= limit.Seconds() { // an error: more than a float64 holds
			return limit, true
		}
		return time.Duration(seconds * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), limit), true
}

// isNumber reports whether s is digits with at most one point among them. ParseFloat alone takes NaN and 0x1p-2, too.
func isNumber(s string) bool {
	return strings.Trim(s, "0123456789.") == "" && strings.ContainsAny(s, "0123456789") && strings.Count(s, ".") <= 1
}
