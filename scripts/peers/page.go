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
		"CPU": cpuTable(res), "Steady": steadyTable(res), "Rates": rateTable(res), "Workflows": workflowTable(res), "Fan": fanTable(res),
		"SteadySeconds": int(steadyFor.Seconds()), "FanSize": fanSize, "NapsAtOnce": napsAtOnce, "Ideal": number(fanSize / napsAtOnce * 100),
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

// column is a column of measurements.
type column struct {
	head string
	of   func(o *outcome) []float64
	q    float64 // quantile; 0 for the median with the least and the greatest value
}

// measured returns a table of the systems with data. On a busy machine it has ratios to Muster.
func measured(res *results, name string, columns ...column) table {
	t := table{head: []string{name}}
	for _, c := range columns {
		t.head = append(t.head, c.head)
	}
	var base *outcome
	if i := slices.IndexFunc(res.Systems, isMuster); i >= 0 && res.Machine.Busy() {
		base = res.Systems[i]
	}
	for _, o := range res.Systems {
		cells, some := []string{o.System.Name}, false
		for _, c := range columns {
			some = some || len(c.of(o)) > 0
			cells = append(cells, c.cell(o, base))
		}
		if some {
			t.add(cells...)
		}
	}
	return t
}

func (c column) cell(o, base *outcome) string {
	vs, q := c.of(o), c.q
	if q == 0 {
		q = 0.5
	}
	v := quantile(vs, q)
	switch {
	case base != nil:
		return number(v / quantile(c.of(base), q))
	case c.q == 0 && len(vs) > 1:
		return fmt.Sprintf("%s (%s–%s)", number(v), number(slices.Min(vs)), number(slices.Max(vs)))
	}
	return number(v)
}

func isMuster(o *outcome) bool { return o.System.Name == "Muster" }

// sums adds lists with a value per turn.
func sums(lists ...[]float64) []float64 {
	var out []float64
	for i := range lists[0] {
		sum := 0.0
		for _, l := range lists {
			sum += l[i]
		}
		out = append(out, sum)
	}
	return out
}

// The CPU times of a single task of a backlog.
func (o *outcome) client() []float64 { return o.EnqueueCPU }
func (o *outcome) worker() []float64 { return o.WorkerCPU }
func (o *outcome) store() []float64  { return sums(o.EnqueueStoreCPU, o.StoreCPU) }
func (o *outcome) cost() []float64 {
	return sums(o.EnqueueCPU, o.WorkerCPU, o.EnqueueStoreCPU, o.StoreCPU)
}

func cpuTable(res *results) table {
	return measured(res, "CPU per task, µs", column{head: "client", of: (*outcome).client}, column{head: "worker", of: (*outcome).worker},
		column{head: "store", of: (*outcome).store}, column{head: "sum", of: (*outcome).cost})
}

// steadyAt returns the measurements at the kth rate; the zero steady if there are none.
func (o *outcome) steadyAt(k int) steady {
	if k < len(o.Steady) {
		return o.Steady[k]
	}
	return steady{}
}

func steadyTable(res *results) table {
	var columns []column
	for k, rate := range steadyRates {
		at := strings.TrimSuffix(number(float64(rate)), ".0") + "/s: "
		cpu := func(o *outcome) []float64 { s := o.steadyAt(k); return sums(s.Client, s.Worker, s.StoreCPU) }
		columns = append(columns, column{head: at + "CPU, µs", of: cpu},
			column{head: "p50, ms", of: func(o *outcome) []float64 { return o.steadyAt(k).P50 }, q: 0.5},
			column{head: "p99, ms", of: func(o *outcome) []float64 { return o.steadyAt(k).P99 }, q: 0.5})
	}
	last := len(steadyRates) - 1
	columns = append(columns, column{head: "sent, tasks/s", of: func(o *outcome) []float64 { return o.steadyAt(last).Sent }, q: 0.5})
	return measured(res, "", columns...)
}

func rateTable(res *results) table {
	latency := func(o *outcome) []float64 { return o.Latency }
	return measured(res, "",
		column{head: "one by one, tasks/s", of: func(o *outcome) []float64 { return o.EnqueueRate }},
		column{head: "in bulk, tasks/s", of: func(o *outcome) []float64 { return o.BulkRate }},
		column{head: "run, tasks/s", of: func(o *outcome) []float64 { return o.Rate }},
		column{head: "bytes queued", of: func(o *outcome) []float64 { return o.Bytes }, q: 0.5},
		column{head: "p50, ms", of: latency, q: 0.5}, column{head: "p99, ms", of: latency, q: 0.99})
}

func workflowTable(res *results) table {
	t := measured(res, "",
		column{head: fmt.Sprintf("chain of %d, ms", chainSteps), of: func(o *outcome) []float64 { return o.Chain }, q: 0.5},
		column{head: "CPU of a step, µs", of: func(o *outcome) []float64 { return o.ChainCPU }},
		column{head: fmt.Sprintf("chord of %d, ms", chordSize), of: func(o *outcome) []float64 { return o.Chord }, q: 0.5},
		column{head: "CPU of a member, µs", of: func(o *outcome) []float64 { return o.ChordCPU }},
	)
	return t
}

func fanTable(res *results) table {
	return measured(res, "", column{head: "last task ended after, ms", of: func(o *outcome) []float64 { return o.Fan }},
		column{head: "CPU per task, µs", of: func(o *outcome) []float64 { return o.FanCPU }})
}

// weaknesses lists the measures in which another system did better than Muster, with the best value.
func weaknesses(res *results) []string {
	i := slices.IndexFunc(res.Systems, isMuster)
	if i < 0 {
		return nil
	}
	var all []string
	for _, m := range []struct {
		name, unit string
		of         func(o *outcome) float64
		less       bool // smaller is better
	}{
		{"CPU per task of a backlog", "µs", func(o *outcome) float64 { return median(o.cost()) }, true},
		{"client CPU", "µs", func(o *outcome) float64 { return median(o.client()) }, true},
		{"worker CPU", "µs", func(o *outcome) float64 { return median(o.worker()) }, true},
		{"store CPU", "µs", func(o *outcome) float64 { return median(o.store()) }, true},
		{"CPU at 20 tasks/s", "µs", steadyCost(0), true},
		{"CPU at 200 tasks/s", "µs", steadyCost(1), true},
		{"CPU at 2,000 tasks/s", "µs", steadyCost(2), true},
		{"sending single tasks", "tasks/s", func(o *outcome) float64 { return median(o.EnqueueRate) }, false},
		{"sending in bulk", "tasks/s", func(o *outcome) float64 { return median(o.BulkRate) }, false},
		{"running", "tasks/s", func(o *outcome) float64 { return median(o.Rate) }, false},
		{"size of a queued task", "bytes", func(o *outcome) float64 { return median(o.Bytes) }, true},
		{"p50 latency of an idle worker", "ms", func(o *outcome) float64 { return quantile(o.Latency, 0.5) }, true},
		{"p99 latency of an idle worker", "ms", func(o *outcome) float64 { return quantile(o.Latency, 0.99) }, true},
		{"p50 latency at 2,000 tasks/s", "ms", func(o *outcome) float64 { return median(o.steadyAt(2).P50) }, true},
		{"p99 latency at 2,000 tasks/s", "ms", func(o *outcome) float64 { return median(o.steadyAt(2).P99) }, true},
		{"a chain", "ms", func(o *outcome) float64 { return median(o.Chain) }, true},
		{"a chord", "ms", func(o *outcome) float64 { return median(o.Chord) }, true},
		{"tasks that wait", "ms", func(o *outcome) float64 { return median(o.Fan) }, true},
		{"CPU of a task that waits", "µs", func(o *outcome) float64 { return median(o.FanCPU) }, true},
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

// steadyCost returns a function for the CPU time of a task at the kth rate.
func steadyCost(k int) func(o *outcome) float64 {
	return func(o *outcome) float64 { s := o.steadyAt(k); return median(sums(s.Client, s.Worker, s.StoreCPU)) }
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
