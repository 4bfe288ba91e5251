package jobs

import (
	"strconv"
	"testing"
	"time"
)

// Seconds have at most three decimals, also where the sum of seconds and nanoseconds would have more.
func TestSecondsAreRounded(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1739 * time.Millisecond: "1.739", 90*time.Second + 500*time.Microsecond: "90.001", 2_000_111_222 * time.Nanosecond: "2", 0: "0",
	} {
		if got := strconv.FormatFloat(seconds(d), 'f', -1, 64); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}
