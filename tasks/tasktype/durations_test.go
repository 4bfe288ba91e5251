package tasktype

import (
	"testing"
	"time"
)

func TestQuantilesAreWithinTheirBucket(t *testing.T) {
	t.Parallel()
	var d Durations
	if got := d.Quantile(0.5); got != 0 {
		t.Errorf("of none: got %s, want 0", got)
	}
	for i := range 1000 {
		d[DurationBucket(time.Duration(i+1)*time.Millisecond)]++
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 500 * time.Millisecond, 0.95: 950 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := d.Quantile(q); got < want*7/10 || got > want*3/2 {
			t.Errorf("quantile %g of 1 ms to 1 s: got %s, want about %s", q, got, want)
		}
	}
	for _, at := range []time.Duration{-1, 0, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, time.Second, time.Hour} {
		b := DurationBucket(at)
		if at > durationBound(b)+time.Microsecond || b > 0 && at <= durationBound(b-1)-time.Microsecond {
			t.Errorf("%s is in bucket %d, up to %s", at, b, durationBound(b))
		}
	}
	if got := DurationBucket(1000 * time.Hour); got != DurationBuckets-1 {
		t.Errorf("1000 hours: got bucket %d, want the last", got)
	}
}

func TestRemainingTimeIsEstimated(t *testing.T) {
	t.Parallel()
	for p, want := range map[Progress]time.Duration{
		{Percent: 20}: 40 * time.Second, {Percent: 100}: 0, {}: 0, {Percent: 50, Ended: true}: 0, {Percent: 1e-12}: 1 << 62,
	} {
		if got := p.Left(10 * time.Second); got != want {
			t.Errorf("%+v after 10 s: got %s, want %s", p, got, want)
		}
	}
}
