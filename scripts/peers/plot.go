package main

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette contains colors that also differ in lightness, so that they can be distinguished without color vision.
var palette = []color.Color{color.RGBA{0x1b, 0x3a, 0x6b, 0xff}, color.RGBA{0x3d, 0x8b, 0xd4, 0xff}, color.RGBA{0xb9, 0xd3, 0xee, 0xff}}

var small = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}

// series are values by system. NaN means no value.
type series struct {
	name   string
	values []float64
}

// plotAll writes the plots of the page.
func plotAll(res *results, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	n := len(res.Systems)
	names := make([]string, n)
	take := func(name string, value func(o *outcome) float64) series {
		s := series{name, make([]float64, n)}
		for i, o := range res.Systems {
			names[i], s.values[i] = o.System.Name, value(o)
		}
		return s
	}
	client := take("client", func(o *outcome) float64 { v, _, _, _ := o.cost(); return v })
	worker := take("worker", func(o *outcome) float64 { _, v, _, _ := o.cost(); return v })
	store := take("store", func(o *outcome) float64 { _, _, v, _ := o.cost(); return v })
	if err := stacked(filepath.Join(dir, "performance-cpu.svg"), "CPU time of a task, µs (less is better)", names, client, worker, store); err != nil {
		return err
	}
	rate := take("tasks/s", func(o *outcome) float64 { return median(o.Rate) })
	if err := stacked(filepath.Join(dir, "performance-rate.svg"), "Tasks per second of a worker (more is better)", names, rate); err != nil {
		return err
	}
	p50 := take("p50", func(o *outcome) float64 { return quantile(o.Latency, 0.5) })
	p99 := take("p99", func(o *outcome) float64 { return quantile(o.Latency, 0.99) })
	if err := dots(filepath.Join(dir, "performance-latency.svg"), "Latency of a task on an idle worker, ms (less is better)", names, p50, p99); err != nil {
		return err
	}
	chain := take("chain of 10", func(o *outcome) float64 { return median(o.Chain) })
	chord := take("chord of 100", func(o *outcome) float64 { return median(o.Chord) })
	return dots(filepath.Join(dir, "performance-workflows.svg"), "A workflow on an idle worker, ms (less is better)", names, chain, chord)
}

// newPlot returns a plot with a row per name, starting at the top.
func newPlot(title string, names []string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 12}
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White // the page may be dark
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	var ticks plot.ConstantTicks
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(len(names) - 1 - i), Label: name})
	}
	p.Y.Tick.Marker = ticks
	for _, style := range []*draw.TextStyle{&p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font = small
	}
	return p
}

// stacked draws stacked bars with their sum.
func stacked(path, title string, names []string, all ...series) error {
	p, legend := newPlot(title, names), plot.NewLegend()
	n := len(names)
	sums := make(plotter.Values, n)
	var below *plotter.BarChart
	for i, s := range all {
		values := slices.Clone(s.values)
		slices.Reverse(values)
		bars, err := plotter.NewBarChart(plotter.Values(values), vg.Points(16))
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, palette[i], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		if len(all) > 1 {
			legend.Add(s.name, bars)
		}
		for k, v := range values {
			sums[k] += v
		}
	}
	labels := plotter.XYLabels{XYs: make(plotter.XYs, n), Labels: make([]string, n)}
	for k, sum := range sums {
		labels.XYs[k], labels.Labels[k] = plotter.XY{X: sum, Y: float64(k)}, number(sum)
	}
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	styleLabels(text)
	p.Add(text)
	p.X.Min, p.X.Max = 0, slices.Max(sums)*1.15
	return writeSVG(p, path, legend, n)
}

func styleLabels(text *plotter.Labels) {
	for i := range text.TextStyle {
		text.TextStyle[i].Font = small
		text.TextStyle[i].YAlign = draw.YCenter
	}
	text.Offset.X = vg.Points(6)
}

// dots draws a dot for each value on a logarithmic axis.
func dots(path, title string, names []string, all ...series) error {
	p, legend := newPlot(title, names), plot.NewLegend()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Add(plotter.NewGrid())
	least, most := math.Inf(1), math.Inf(-1)
	for i, s := range all {
		var at plotter.XYs
		labels := plotter.XYLabels{}
		for k, v := range s.values {
			if math.IsNaN(v) {
				continue
			}
			xy := plotter.XY{X: v, Y: float64(len(names)-1-k) + 0.14 - 0.28*float64(i)}
			at, labels.XYs, labels.Labels = append(at, xy), append(labels.XYs, xy), append(labels.Labels, number(v))
			least, most = min(least, v), max(most, v)
		}
		if len(at) == 0 {
			continue
		}
		points, err := plotter.NewScatter(at)
		if err != nil {
			return err
		}
		points.GlyphStyle = draw.GlyphStyle{Color: palette[i], Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		text, err := plotter.NewLabels(labels)
		if err != nil {
			return err
		}
		styleLabels(text)
		p.Add(points, text)
		legend.Add(s.name, points)
	}
	if least > most {
		return nil // not supported by any system
	}
	p.X.Min = math.Pow(10, math.Floor(math.Log10(least)))
	p.X.Max = math.Pow(10, math.Ceil(math.Log10(most*1.3)))
	return writeSVG(p, path, legend, len(names))
}

// writeSVG writes a plot with its legend, if any, on the right.
func writeSVG(p *plot.Plot, path string, legend plot.Legend, rows int) error {
	const margin = 10
	width, height := vg.Points(700), vg.Points(60+36*float64(rows))
	c := vgsvg.New(width, height)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	p.Draw(draw.Crop(all, margin, -100, margin, -margin))
	legend.TextStyle = p.X.Tick.Label
	legend.TextStyle.XAlign, legend.TextStyle.YAlign = 0, p.Legend.TextStyle.YAlign
	legend.Top, legend.ThumbnailWidth, legend.Padding = true, vg.Points(12), vg.Points(4)
	legend.Draw(draw.Crop(all, 0, -margin, 0, -45))
	var svg bytes.Buffer
	if _, err := c.WriteTo(&svg); err != nil {
		return err
	}
	// Fallback fonts with the same metrics.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(path, text, 0o644)
}
