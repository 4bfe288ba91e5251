// Package retryafter parses the Retry-After header of HTTP responses.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse returns the duration from now until the time in a Retry-After value, which is a number of seconds, possibly with decimals,
// or an HTTP date; ok reports whether the value is valid. d is between 0 and limit.
func Parse(value string, now time.Time, limit time.Duration) (d time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if isNumber(value) {
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || seconds >= limit.Seconds() { // ParseFloat fails only on overflow
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

// isNumber reports whether s consists of digits and at most one decimal point. ParseFloat also accepts NaN and 0x1p-2.
func isNumber(s string) bool {
	return strings.Trim(s, "0123456789.") == "" && strings.ContainsAny(s, "0123456789") && strings.Count(s, ".") <= 1
}
