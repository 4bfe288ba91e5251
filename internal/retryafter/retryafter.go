// Package retryafter parses the header Retry-After of HTTP responses.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse returns how long after now the value of a Retry-After allows the next request. The value is a number of seconds,
// which may have decimals, or an HTTP date; ok reports whether it is either. d is from 0 to limit.
func Parse(value string, now time.Time, limit time.Duration) (d time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if isNumber(value) {
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil || seconds >= limit.Seconds() { // an error means that it overflows a float64
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

// isNumber reports whether s is digits with at most one point among them. ParseFloat alone accepts NaN and 0x1p-2, too.
func isNumber(s string) bool {
	return strings.Trim(s, "0123456789.") == "" && strings.ContainsAny(s, "0123456789") && strings.Count(s, ".") <= 1
}
