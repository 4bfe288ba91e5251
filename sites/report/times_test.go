package report

import (
	"math"
	"testing"
	"time"
)

func TestQuantileExceedsValueByAtMostATenth(t *testing.T) {
	t.Parallel()
	var a Times
	for i := range 100 {
		a.Add(time.Duration(i+1) * 10 * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.95: 950 * time.Millisecond, 0.99: 990 * time.Millisecond} {
		if got := a.Quantile(q); got < want || got > want*11/10 {
			t.Errorf("p%v: got %s, want %s and at most a tenth more", q*100, got, want)
		}
	}
	if m := a.Mean(); m < 500*time.Millisecond || m > 560*time.Millisecond {
		t.Errorf("mean: got %s, want 500ms to 560ms", m)
	}
	if p := a.Percentiles(); *p != (Percentiles{round3(a.Mean()), round3(a.Quantile(0.5)), round3(a.Quantile(0.95)), round3(a.Quantile(0.99))}) {
		t.Errorf("got %+v, want the mean and the quantiles", *p)
	}
	if p := Times(nil).Percentiles(); p != nil {
		t.Errorf("of no pages: got %+v, want nil", *p)
	}
	if q, m := Times(nil).Quantile(0.5), Times(nil).Mean(); q != 0 || m != 0 {
		t.Errorf("of no pages: got %s, %s, want 0", q, m)
	}
}

// round3 returns seconds to the millisecond.
func round3(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
