package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

//go:embed performance.md.tmpl
var pageText string

var page = template.Must(template.New("performance.md").Funcs(template.FuncMap{
	"join": strings.Join, "minutes": func(d time.Duration) string { return fmt.Sprintf("%.0f minutes", d.Minutes()) },
}).Parse(pageText))

// table is a table of the page.
type table struct {
	head []string
	rows [][]string
	text int // the number of columns with text at the end
}

// render renders the page as Markdown.
func render(res *results) ([]byte, error) {
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{
		"R": res, "Concurrency": concurrency, "Singles": number(singles),
		"ChainsAtOnce": chainsAtOnce, "ChordsAtOnce": chordsAtOnce,
		"CPU": cpuTable(res), "Rates": rateTable(res), "Workflows": workflowTable(res),
		"Guarantees": guaranteeTable(res), "Behind": weaknesses(res), "Old": old(res), "Settings": settings(res),
	})
	return out.Bytes(), err
}

// String returns the table as Markdown with right-aligned numbers.
func (t table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	for i := range t.text {
		rule[len(rule)-1-i] = "---"
	}
	b.WriteString("|" + strings.Join(rule, "|") + "|\n")
	for _, r := range t.rows {
		line(r)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// cost returns the CPU time of a single task in µs: of the sending client, the worker and the store.
func (o *outcome) cost() (client, worker, store, sum float64) {
	client, worker, store = median(o.EnqueueCPU), median(o.WorkerCPU), median(o.EnqueueStoreCPU)+median(o.StoreCPU)
	return client, worker, store, client + worker + store
}

func cpuTable(res *results) table {
	t := table{head: []string{"CPU per task, µs", "client", "worker", "store", "sum"}}
	for _, o := range res.Systems {
		client, worker, store, sum := o.cost()
		t.add(o.System.Name, number(client), number(worker), number(store), number(sum))
	}
	return t
}

func rateTable(res *results) table {
	t := table{head: []string{"", "one by one, tasks/s", "in bulk, tasks/s", "client CPU in bulk, µs", "run, tasks/s", "bytes queued", "p50, ms", "p99, ms"}}
	for _, o := range res.Systems {
		t.add(o.System.Name, number(median(o.EnqueueRate)), number(median(o.BulkRate)), number(median(o.BulkCPU)), number(median(o.Rate)), number(median(o.Bytes)),
			number(quantile(o.Latency, 0.5)), number(quantile(o.Latency, 0.99)))
	}
	return t
}

func workflowTable(res *results) table {
	t := table{head: []string{
		"", fmt.Sprintf("chain of %d, ms", chainSteps), "steps/s", "CPU of a step, µs",
		fmt.Sprintf("chord of %d, ms", chordSize), "members/s", "CPU of a member, µs",
	}}
	for _, o := range res.Systems {
		if len(o.Chain)+len(o.Chord) == 0 {
			continue
		}
		t.add(o.System.Name, number(median(o.Chain)), number(median(o.ChainRate)), number(median(o.ChainCPU)),
			number(median(o.Chord)), number(median(o.ChordRate)), number(median(o.ChordCPU)))
	}
	return t
}

// weaknesses lists the measures in which another system did better than Muster, with the best value.
func weaknesses(res *results) []string {
	i := slices.IndexFunc(res.Systems, func(o *outcome) bool { return o.System.Name == "Muster" })
	if i < 0 {
		return nil
	}
	var all []string
	for _, m := range []struct {
		name, unit string
		of         func(o *outcome) float64
		less       bool // smaller is better
	}{
		{"CPU per task", "µs", func(o *outcome) float64 { _, _, _, sum := o.cost(); return sum }, true},
		{"client CPU per task", "µs", func(o *outcome) float64 { client, _, _, _ := o.cost(); return client }, true},
		{"worker CPU per task", "µs", func(o *outcome) float64 { _, worker, _, _ := o.cost(); return worker }, true},
		{"store CPU per task", "µs", func(o *outcome) float64 { _, _, store, _ := o.cost(); return store }, true},
		{"sending single tasks", "tasks/s", func(o *outcome) float64 { return median(o.EnqueueRate) }, false},
		{"sending in bulk", "tasks/s", func(o *outcome) float64 { return median(o.BulkRate) }, false},
		{"running", "tasks/s", func(o *outcome) float64 { return median(o.Rate) }, false},
		{"size of a queued task", "bytes", func(o *outcome) float64 { return median(o.Bytes) }, true},
		{"p50 latency", "ms", func(o *outcome) float64 { return quantile(o.Latency, 0.5) }, true},
		{"p99 latency", "ms", func(o *outcome) float64 { return quantile(o.Latency, 0.99) }, true},
		{"a chain", "ms", func(o *outcome) float64 { return median(o.Chain) }, true},
		{"many chains", "steps/s", func(o *outcome) float64 { return median(o.ChainRate) }, false},
		{"a chord", "ms", func(o *outcome) float64 { return median(o.Chord) }, true},
		{"many chords", "members/s", func(o *outcome) float64 { return median(o.ChordRate) }, false},
		{"a task after kill -9", "s", recoveredAfter, true},
	} {
		ours := m.of(res.Systems[i])
		best, system := ours, ""
		for _, o := range res.Systems {
			if v := m.of(o); m.less && v < best || !m.less && v > best { // false for NaN
				best, system = v, o.System.Name
			}
		}
		if system != "" {
			all = append(all, fmt.Sprintf("%s: %s %s; %s %s", m.name, number(ours), m.unit, system, number(best)))
		}
	}
	return all
}

// recoveredAfter returns the recovery time in seconds, or NaN if the task did not run in time.
func recoveredAfter(o *outcome) float64 {
	if o.Recovered == 0 {
		return math.NaN()
	}
	return o.Recovered.Seconds()
}

// old describes the systems from Debian packages.
func old(res *results) string {
	var names []string
	for _, o := range res.Systems {
		if o.System.Name == "Celery" || o.System.Name == "Sidekiq" {
			names = append(names, o.System.Name)
		}
	}
	switch last := len(names) - 1; last {
	case -1:
		return ""
	case 0:
		return names[0] + " is an older Debian package."
	default:
		return strings.Join(names[:last], ", ") + " and " + names[last] + " are older Debian packages."
	}
}

// settings lists the settings that differ from the defaults.
func settings(res *results) string {
	var all []string
	for _, o := range res.Systems {
		if o.System.Settings != "" {
			all = append(all, o.System.Name+" "+o.System.Settings)
		}
	}
	return strings.Join(all, "; ")
}

// guaranteeTable lists when a task of a killed worker runs again, and the guarantees of each system.
func guaranteeTable(res *results) table {
	t := table{head: []string{"", "runs again after, s", "because", "guarantee"}, text: 2}
	for _, o := range res.Systems {
		s := o.System
		took := fmt.Sprintf("> %.0f", res.Limit.Seconds())
		switch {
		case o.Recovered > 0:
			took = number(o.Recovered.Seconds())
		case s.Loses:
			took = "lost"
		}
		t.add(strings.TrimSpace(s.Name+" "+s.Version), took, s.Recovery, s.Promise)
	}
	return t
}

// number formats a value with three significant digits, or "none" for NaN.
func number(v float64) string {
	if math.IsNaN(v) {
		return "none"
	}
	if v <= 0 {
		return "0"
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64) // always valid
	digits := 2 - int(math.Floor(math.Log10(v)))
	s := strconv.FormatFloat(v, 'f', min(max(digits, 0), 3), 64)
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}

// median returns the median, or NaN without values.
func median(vs []float64) float64 { return quantile(vs, 0.5) }

// quantile returns the smallest value that is at least as great as the share q of all values. The median of an even number of
// values is the mean of the two middle ones. Without values it is NaN.
func quantile(vs []float64, q float64) float64 {
	n := len(vs)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(vs))
	if q == 0.5 && n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[max(0, int(math.Ceil(q*float64(n)))-1)]
}
