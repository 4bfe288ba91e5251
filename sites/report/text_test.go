package report

import "testing"

func TestSessionsTextBeginsWithTheMostFrequentReason(t *testing.T) {
	t.Parallel()
	if got, want := sessionsText(map[string]int{"blocked": 1, "age": 1, "rate_limited": 3}), "ended: rate_limited 3, age 1, blocked 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := sessionsText(map[string]int{}), "none ended early"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
