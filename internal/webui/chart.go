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
}

// Bar is a bar of a chart.
type Bar struct {
	Label     string // tooltip
	Good, Bad int64
}

// Most returns the height of the highest bar.
func (c Chart) Most() int64 {
	var most int64
	for _, b := range c.Bars {
		most = max(most, b.Good+b.Bad)
	}
	return most
}

// drawn is a bar in coordinates of a drawing with height 100 and width 1 per bar.
type drawn struct {
	Bar
	Top, Height, BadTop, BadHeight float64
}

// Drawn returns the bars in drawing coordinates.
func (c Chart) Drawn() []drawn {
	most := float64(max(c.Most(), 1))
	var all []drawn
	for _, b := range c.Bars {
		good, bad := 100*float64(b.Good)/most, 100*float64(b.Bad)/most
		all = append(all, drawn{Bar: b, Top: 100 - good - bad, Height: good, BadTop: 100 - bad, BadHeight: bad})
	}
	return all
}

// Tooltip returns the tooltip of a bar with successes and failures.
func Tooltip(at string, succeeded, failed int64) string {
	return fmt.Sprintf("%s: %d succeeded, %d failed", at, succeeded, failed)
}

// Point contains the numbers of successes and failures at a time.
type Point struct {
	At                time.Time
	Succeeded, Failed int64
}

// NewChart returns a chart of successes and failures with one bar per step.
func NewChart(title string, points []Point, since, until time.Time, step time.Duration) Chart {
	c := Chart{Title: title}
	since = since.Truncate(step)
	for at := since; !at.After(until); at = at.Add(step) {
		c.Bars = append(c.Bars, Bar{})
	}
	for _, p := range points {
		if i := int(p.At.Sub(since) / step); i >= 0 && i < len(c.Bars) {
			c.Bars[i].Good += p.Succeeded
			c.Bars[i].Bad += p.Failed
		}
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Label = Tooltip(since.Add(time.Duration(i)*step).UTC().Format("15:04 UTC"), b.Good, b.Bad)
	}
	return c
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
