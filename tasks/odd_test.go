package tasks_test

import (
	"math"
	"testing"
	"time"

	"muster/tasks"
)

// Whatever numbers a sender gives as options, the worker lives and the workflow ends.
func TestOddOptions(t *testing.T) {
	t.Parallel()
	const never = time.Duration(math.MaxInt64)
	inWorlds(t, func(t *testing.T, w *world) {
		for name, opts := range map[string][]tasks.Option{
			"negative back-off":     {tasks.MaxRetry(2), tasks.Backoff(0, -time.Second)},
			"both negative":         {tasks.MaxRetry(2), tasks.Backoff(-time.Second, -time.Second)},
			"constant and negative": {tasks.MaxRetry(2), tasks.ConstantBackoff(-time.Second)},
			"negative limits":       {tasks.MaxRetry(-1), tasks.Timeout(-1), tasks.AtMost(-1), tasks.In(-time.Hour)},
			"no starts":             {tasks.RateLimit(0, time.Second)},
			"starts in no time":     {tasks.RateLimit(1, 0)},
			"starts back in time":   {tasks.RateLimit(-1, -time.Second)},
			"endless limits":        {tasks.Timeout(never), tasks.HardTimeout(never), tasks.RateLimit(math.MaxInt, never)},
			"long ago":              {tasks.At(time.Time{}), tasks.Priority(math.MinInt)},
		} {
			if _, err := send(t, w, tasks.Chain(Fail.S(1, opts...), Inc)); err == nil {
				t.Errorf("%s: no error", name)
			}
			if got, err := send(t, w, ID.S(3, opts...)); err != nil || got != 3 {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		}
	})
}
