package jobs

import "testing"

func TestEstimateIsWhatIsLeftAtThePaceSoFar(t *testing.T) {
	t.Parallel()
	seconds := func(n float64) *float64 { return &n }
	for name, c := range map[string]struct {
		items   Counts
		elapsed float64
		want    *float64
		minute  float64
	}{
		"4 of 10 after 40 s": {Counts{Total: 10, Integrated: 3, Failed: 1, Pending: 5, Validating: 1}, 40, seconds(60), 6},
		"none has ended":     {Counts{Total: 10, Pending: 10}, 40, nil, 0},
		"no items":           {Counts{}, 40, nil, 0},
		"all have ended":     {Counts{Total: 10, Integrated: 10}, 60, seconds(0), 10},
		"it has just begun":  {Counts{Total: 10, Integrated: 1, Pending: 9}, 0, nil, 0},
	} {
		p := Progress{Items: c.items, ElapsedSeconds: c.elapsed}
		p.setPace()
		if (p.ETASeconds == nil) != (c.want == nil) || c.want != nil && *p.ETASeconds != *c.want || p.PerMinute != c.minute {
			t.Errorf("%s: got %v s left, %v items a minute, want %v and %v", name, p.ETASeconds, p.PerMinute, c.want, c.minute)
		}
	}
}
