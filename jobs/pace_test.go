package jobs

import (
	"strconv"
	"testing"
	"time"
)

func TestEstimateIsWhatIsLeftAtThePaceSoFar(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_040, 0)
	step := func(ago time.Duration) string { return strconv.FormatInt(now.Add(-ago).UnixNano()/int64(paceStep), 10) }
	seconds := func(n float64) *float64 { return &n }
	for name, c := range map[string]struct {
		items  Counts
		steps  map[string]string
		begun  time.Duration // ago
		want   *float64
		minute float64
	}{
		"4 of 10 after 40 s":        {Counts{Total: 10, Integrated: 3, Failed: 1, Pending: 5, Validating: 1}, map[string]string{step(10 * time.Second): "3", step(0): "1"}, 40 * time.Second, seconds(60), 6},
		"none has ended":            {Counts{Total: 10, Pending: 10}, nil, 40 * time.Second, nil, 0},
		"no items":                  {Counts{}, nil, 40 * time.Second, nil, 0},
		"none in the last minutes":  {Counts{Total: 10, Integrated: 4, Pending: 6}, map[string]string{step(time.Hour): "4"}, 2 * time.Hour, nil, 0},
		"the pace of the last ones": {Counts{Total: 100, Integrated: 40, Pending: 60}, map[string]string{step(time.Hour): "10", step(time.Minute): "30"}, 2 * time.Hour, seconds(600), 6},
	} {
		p := Progress{Items: c.items}
		p.setPace(c.steps, now.Add(-c.begun), now)
		switch {
		case (p.ETASeconds == nil) != (c.want == nil):
			t.Errorf("%s: got an estimate %v, want %v", name, p.ETASeconds != nil, c.want != nil)
		case c.want != nil && *p.ETASeconds != *c.want:
			t.Errorf("%s: got %v s left, want %v", name, *p.ETASeconds, *c.want)
		}
		if p.PerMinute != c.minute {
			t.Errorf("%s: got %v items a minute, want %v", name, p.PerMinute, c.minute)
		}
	}
}
