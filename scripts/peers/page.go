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
)

//go:embed performance.md.tmpl
var pageText string

// measure is a column of a table of the page.
type measure struct {
	table, head, unit string
	of                func(o *outcome) []float64
	q                 float64 // quantile; 0 for the median
	more              bool    // greater is better
}

// measures are the columns of all tables, in their order.
func measures() []measure {
	all := []measure{
		{"backlog", "client", "µs", func(o *outcome) []float64 { return o.EnqueueCPU }, 0, false},
		{"backlog", "worker", "µs", func(o *outcome) []float64 { return o.WorkerCPU }, 0, false},
		{"backlog", "store", "µs", func(o *outcome) []float64 { return sums(o.EnqueueStoreCPU, o.StoreCPU) }, 0, false},
		{"rates", "CPU", "µs", func(o *outcome) []float64 {
			return sums(o.EnqueueCPU, o.WorkerCPU, o.EnqueueStoreCPU, o.StoreCPU)
		}, 0, false},
		{"rates", "one by one", "tasks/s", func(o *outcome) []float64 { return o.EnqueueRate }, 0, true},
		{"rates", "in bulk", "tasks/s", func(o *outcome) []float64 { return o.BulkRate }, 0, true},
		{"rates", "run", "tasks/s", func(o *outcome) []float64 { return o.Rate }, 0, true},
		{"rates", "queued", "bytes", func(o *outcome) []float64 { return o.Bytes }, 0.5, false},
		{"rates", "p50", "ms", func(o *outcome) []float64 { return o.Latency }, 0.5, false},
		{"rates", "p99", "ms", func(o *outcome) []float64 { return o.Latency }, 0.99, false},
		{"workflows", fmt.Sprintf("chain of %d", chainSteps), "ms", func(o *outcome) []float64 { return o.Chain }, 0.5, false},
		{"workflows", "CPU of a step", "µs", func(o *outcome) []float64 { return o.ChainCPU }, 0, false},
		{"workflows", fmt.Sprintf("chord of %d", chordSize), "ms", func(o *outcome) []float64 { return o.Chord }, 0.5, false},
		{"workflows", "CPU of a member", "µs", func(o *outcome) []float64 { return o.ChordCPU }, 0, false},
		{"waiting", "last task ended after", "ms", func(o *outcome) []float64 { return o.Fan }, 0, false},
		{"waiting", "CPU per task", "µs", func(o *outcome) []float64 { return o.FanCPU }, 0, false},
	}
	for k, rate := range steadyRates {
		at := func(of func(s steady) []float64) func(o *outcome) []float64 {
			return func(o *outcome) []float64 {
				if k >= len(o.Steady) {
					return nil
				}
				return of(o.Steady[k])
			}
		}
		name := strings.TrimSuffix(number(float64(rate)), ".0") + "/s: "
		all = append(all,
			measure{"steady", name + "CPU", "µs", at(func(s steady) []float64 { return sums(s.Client, s.Worker, s.StoreCPU) }), 0, false},
			measure{"steady", name + "p50", "ms", at(func(s steady) []float64 { return s.P50 }), 0.5, false},
			measure{"steady", name + "p99", "ms", at(func(s steady) []float64 { return s.P99 }), 0.5, false})
	}
	last := len(steadyRates) - 1
	return append(all, measure{"steady", "sent", "tasks/s", func(o *outcome) []float64 {
		if last >= len(o.Steady) {
			return nil
		}
		return o.Steady[last].Sent
	}, 0.5, true})
}

// value returns the value of a system, or NaN.
func (m measure) value(o *outcome) float64 {
	if m.q == 0 {
		return quantile(m.of(o), 0.5)
	}
	return quantile(m.of(o), m.q)
}

// render renders the page as Markdown.
func render(res *results) ([]byte, error) {
	var out bytes.Buffer
	page, err := template.New("performance.md").Funcs(template.FuncMap{
		"join":  strings.Join,
		"table": func(name string) string { return tableOf(res, name) },
	}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	err = page.Execute(&out, map[string]any{
		"R": res, "Concurrency": concurrency, "Singles": number(singles), "ChainsAtOnce": chainsAtOnce, "ChordsAtOnce": chordsAtOnce,
		"SteadySeconds": int(steadyFor.Seconds()),
		"Guarantees":    guarantees(res), "Behind": weaknesses(res), "Settings": settings(res),
	})
	return out.Bytes(), err
}

// markdown returns a table, whose last columns have text.
func markdown(rows [][]string, text int) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|---%s%s|\n", strings.Repeat("|---:", len(row)-1-text), strings.Repeat("|---", text))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func isMuster(o *outcome) bool { return o.System.Name == "Muster" }

// tableOf returns a table of the systems with data. On a busy machine it has ratios to Muster.
func tableOf(res *results, name string) string {
	rows := [][]string{{""}}
	for _, m := range measures() {
		if m.table == name {
			rows[0] = append(rows[0], m.head+", "+m.unit)
		}
	}
	base := slices.IndexFunc(res.Systems, isMuster)
	for _, o := range res.Systems {
		row, some := []string{o.System.Name}, false
		for _, m := range measures() {
			if m.table != name {
				continue
			}
			some = some || len(m.of(o)) > 0
			value := m.value(o)
			if base >= 0 && res.Machine.Busy() {
				value /= m.value(res.Systems[base])
			}
			row = append(row, number(value))
		}
		if some {
			rows = append(rows, row)
		}
	}
	return markdown(rows, 0)
}

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

// weaknesses lists the measures in which another system did better than Muster, by table, with the best value.
func weaknesses(res *results) []string {
	i := slices.IndexFunc(res.Systems, isMuster)
	if i < 0 {
		return nil
	}
	recovered := measure{"recovery", "a task after kill -9", "s", func(o *outcome) []float64 {
		if o.Recovered == 0 {
			return nil
		}
		return []float64{o.Recovered.Seconds()}
	}, 0.5, false}
	var all []string
	table := ""
	for _, m := range append(measures(), recovered) {
		ours := m.value(res.Systems[i])
		best, system := ours, ""
		for _, o := range res.Systems {
			if v := m.value(o); !m.more && v < best || m.more && v > best { // false for NaN
				best, system = v, o.System.Name
			}
		}
		if number(ours) != number(best) {
			item := fmt.Sprintf(" %s %s %s (%s %s)", m.head, number(ours), m.unit, system, number(best))
			if len(all) == 0 || m.table != table {
				all = append(all, m.table+":")
			} else {
				item = ";" + item
			}
			table, all[len(all)-1] = m.table, all[len(all)-1]+item
		}
	}
	return all
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

// guarantees returns a table of when a task of a killed worker runs again, and of the guarantees of each system.
func guarantees(res *results) string {
	rows := [][]string{{"", "runs again after, s", "because", "guarantee"}}
	for _, o := range res.Systems {
		s := o.System
		took := fmt.Sprintf("> %.0f", res.Limit.Seconds())
		switch {
		case o.Recovered > 0:
			took = number(o.Recovered.Seconds())
		case s.Loses:
			took = "lost"
		}
		rows = append(rows, []string{strings.TrimSpace(s.Name + " " + s.Version), took, s.Recovery, s.Promise})
	}
	return markdown(rows, 2)
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
