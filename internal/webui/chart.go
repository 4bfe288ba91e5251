package webui

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

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

// Line is a sparkline of a share, drawn by the template "line".
type Line struct {
	Title  string    // accessible description
	Shares []float64 // from 0 to 1, oldest first; negative for no value
}

// Path returns the line as an SVG path in a drawing with width 100 and height 24.
func (l Line) Path() string {
	var out strings.Builder
	step := 96 / float64(max(len(l.Shares)-1, 1))
	gap := true
	for i, share := range l.Shares {
		if share < 0 {
			gap = true
			continue
		}
		x, y := 2+step*float64(i), 22-20*min(share, 1)
		if gap { // a dot, if no value follows
			fmt.Fprintf(&out, "M%.1f,%.1fh.1", x, y)
		} else {
			fmt.Fprintf(&out, "L%.1f,%.1f", x, y)
		}
		gap = false
	}
	if len(l.Shares) == 1 {
		out.WriteString("H98")
	}
	return out.String()
}

// NewLine returns a line of counts. Negative counts are unknown.
func NewLine(title string, counts []int64) Line {
	l, most := Line{Title: title}, slices.Max(append([]int64{1}, counts...))
	for _, n := range counts {
		l.Shares = append(l.Shares, float64(n)/float64(most))
	}
	return l
}
