package ui

import (
	"fmt"
	"time"

	"muster/tasks/tasktype"
)

// chart is how many tasks ended, by time, as bars of SVG. Its width is 1 for each bar and its height 100.
type chart struct {
	Bars  []bar
	Title string
	Most  int64     // of the highest bar
	Since time.Time // when the first begins
	Step  time.Duration
}

// bar is a minute or an hour of a chart.
type bar struct {
	Time              time.Time
	Succeeded, Failed int64
	Good, Bad         float64 // heights of its parts, of 100
}

// Top is where the bar begins.
func (b bar) Top() float64 { return 100 - b.Good - b.Bad }

// BadTop is where the failed part begins: it stands on the ground.
func (b bar) BadTop() float64 { return 100 - b.Bad }

// Label is what the bar says when it is pointed at.
func (b bar) Label() string {
	return fmt.Sprintf("%s: %d succeeded, %d failed", b.Time.UTC().Format("15:04"), b.Succeeded, b.Failed)
}

func newChart(points []tasktype.RatePoint, since, until time.Time, step time.Duration) chart {
	c := chart{Since: since.Truncate(step), Step: step}
	for at := c.Since; !at.After(until); at = at.Add(step) {
		c.Bars = append(c.Bars, bar{Time: at})
	}
	for _, p := range points {
		i := int(p.Time.Sub(c.Since) / step)
		if i < 0 || i >= len(c.Bars) {
			continue
		}
		c.Bars[i].Succeeded += p.Succeeded
		c.Bars[i].Failed += p.Failed
	}
	for _, b := range c.Bars {
		c.Most = max(c.Most, b.Succeeded+b.Failed)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Good = 100 * float64(b.Succeeded) / float64(max(c.Most, 1))
		b.Bad = 100 * float64(b.Failed) / float64(max(c.Most, 1))
	}
	return c
}

// Named returns the chart with a title.
func (c chart) Named(title string) chart {
	c.Title = title
	return c
}
