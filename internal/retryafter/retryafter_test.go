package retryafter_test

import (
	"net/http"
	"testing"
	"time"

	"muster/internal/retryafter"
)

func TestParseReadsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false},
		{"0", 0, true},
		{"120", 2 * time.Minute, true},
		{" 1.5 ", 1500 * time.Millisecond, true},
		{"99999", time.Hour, true},
		{"99999999999999999999999999999999", time.Hour, true},
		{"-5", 0, false},
		{"1e2", 0, false},
		{"NaN", 0, false},
		{"Inf", 0, false},
		{"0x10", 0, false},
		{"1.2.3", 0, false},
		{".", 0, false},
		{"soon", 0, false},
		{now.Add(90 * time.Second).Format(http.TimeFormat), 90 * time.Second, true},
		{now.Add(-time.Minute).Format(http.TimeFormat), 0, true},
		{now.Add(48 * time.Hour).Format(http.TimeFormat), time.Hour, true},
		{now.Add(time.Minute).Format(time.RFC850), time.Minute, true},
	} {
		if got, ok := retryafter.Parse(c.value, now, time.Hour); got != c.want || ok != c.ok {
			t.Errorf("%q: got %v, %v, want %v, %v", c.value, got, ok, c.want, c.ok)
		}
	}
}
