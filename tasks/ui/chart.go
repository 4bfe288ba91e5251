package ui

import (
	"time"

	"muster/internal/webui"
	"muster/tasks/tasktype"
)

// newChart shows how many tasks ended, with a bar for each step of time.
func newChart(title string, points []tasktype.RatePoint, since, until time.Time, step time.Duration) webui.Chart {
	c := webui.Chart{Title: title}
	since = since.Truncate(step)
	for at := since; !at.After(until); at = at.Add(step) {
		c.Bars = append(c.Bars, webui.Bar{})
	}
	for _, p := range points {
		if i := int(p.Time.Sub(since) / step); i >= 0 && i < len(c.Bars) {
			c.Bars[i].Good += p.Succeeded
			c.Bars[i].Bad += p.Failed
		}
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Label = webui.Tell(since.Add(time.Duration(i)*step).Format("15:04"), b.Good, b.Bad)
	}
	return c
}
