package ui

import (
	"time"

	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// newChart returns a chart of the completed tasks with a bar for each step.
func newChart(title string, points []tasktype.RatePoint, since, until time.Time, step time.Duration) webui.Chart {
	all := make([]webui.Point, len(points))
	for i, p := range points {
		all[i] = webui.Point{At: p.Time, Succeeded: p.Succeeded, Failed: p.Failed}
	}
	return webui.NewChart(title, all, since, until, step)
}
