package webui

import "fmt"

// Chart is a row of bars, drawn by the template "chart". Each has a good part, and a bad one below it.
type Chart struct {
	Title string // what it shows, for those who do not see it
	Bars  []Bar
}

// Bar is a bar of a chart.
type Bar struct {
	Label     string // what it says when it is pointed at
	Good, Bad int64
}

// Most is the height of the highest bar.
func (c Chart) Most() int64 {
	var most int64
	for _, b := range c.Bars {
		most = max(most, b.Good+b.Bad)
	}
	return most
}

// drawn is a bar as rectangles of a drawing that is 100 high, and 1 wide for each bar.
type drawn struct {
	Bar
	Top, Height, BadTop, BadHeight float64
}

// Drawn returns the bars as they are drawn.
func (c Chart) Drawn() []drawn {
	most := float64(max(c.Most(), 1))
	var all []drawn
	for _, b := range c.Bars {
		good, bad := 100*float64(b.Good)/most, 100*float64(b.Bad)/most
		all = append(all, drawn{Bar: b, Top: 100 - good - bad, Height: good, BadTop: 100 - bad, BadHeight: bad})
	}
	return all
}

// Tell is the label of a bar of things that succeed or fail.
func Tell(at string, succeeded, failed int64) string {
	return fmt.Sprintf("%s: %d succeeded, %d failed", at, succeeded, failed)
}
