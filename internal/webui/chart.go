package webui

import "time"

// Chart is a bar chart, drawn by the template "chart". Each bar has a good part above a bad part.
type Chart struct {
	Title string // accessible description
	Bars  []Bar
	since time.Time
	step  time.Duration
}

// Bar is a bar of a chart.
type Bar struct {
	Label     string // tooltip, without the numbers
	Good, Bad int64
}

// NewChart returns a chart of successes and failures by time with one bar per step.
func NewChart(title string, since, until time.Time, step time.Duration) *Chart {
	c := &Chart{Title: title, since: since.Truncate(step), step: step}
	for at := c.since; !at.After(until); at = at.Add(step) {
		c.Bars = append(c.Bars, Bar{Label: at.UTC().Format("15:04 UTC")})
	}
	return c
}

// Add adds successes and failures at a time.
func (c *Chart) Add(at time.Time, succeeded, failed int64) {
	if i := int(at.Sub(c.since) / c.step); i >= 0 && i < len(c.Bars) {
		c.Bars[i].Good += succeeded
		c.Bars[i].Bad += failed
	}
}

// ByTime reports whether the chart is by time.
func (c *Chart) ByTime() bool { return c.step > 0 }

// Most returns the height of the highest bar.
func (c *Chart) Most() (most int64) {
	for _, b := range c.Bars {
		most = max(most, b.Good+b.Bad)
	}
	return most
}

// Line is a sparkline, drawn by the template "line".
type Line struct {
	Title  string    // accessible description
	Values []float64 // oldest first; negative for unknown values
	Top    float64   // value at the upper end
}

// Last returns the position of the last value.
func (l Line) Last() int { return max(len(l.Values)-1, 1) }
