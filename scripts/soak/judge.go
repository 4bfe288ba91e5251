//go:build unix

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// quarters is the number of parts of a run. The second is compared with the last: in the first all caches fill.
const quarters = 4

// report is the result of a run.
type report struct {
	OK       bool      `json:"ok"`
	Minutes  int       `json:"minutes"`
	Seed     uint64    `json:"seed"`
	Rate     int       `json:"rate"`
	Began    time.Time `json:"began"`
	Took     string    `json:"took"`
	Accounts []book    `json:"accounts"`
	Growth   []growth  `json:"growth"`
	Judged   bool      `json:"judged"` // whether the run was long enough to judge growth
	Problems []string  `json:"problems"`
	Samples  []sample  `json:"samples"`
}

// growth compares a value in the second and in the last quarter.
type growth struct {
	Name   string  `json:"name"`
	State  string  `json:"state"` // load or drained
	Second float64 `json:"second"`
	Last   float64 `json:"last"`
	Bar    float64 `json:"bar"`
	OK     bool    `json:"ok"`
	Why    string  `json:"why,omitempty"` // it is not judged
}

// leastMinutes is how long a run must be for growth to be judged: in less, what is kept for minutes still adds up.
const leastMinutes = 20

// slack is how much more than a fifth a value may grow. What is here has these reasons:
//
//   - rss: the pace of the garbage collector, and pages of memory that the kernel has not taken back
//   - goroutines and fds: pools of connections, which grow to their size with chance
//   - redis memory: the lists of the last 10,000 workflows of a state, and the statistics of an hour and a day
//   - keys: proxies that refreshes find or remove, work that is under way, and hours that begin
//   - bytes: logs up to their size, and what Redis appends until it rewrites its file
var slack = []struct {
	prefix string
	more   float64
}{
	{"rss ", 16 << 20}, {"goroutines ", 25}, {"fds ", 15}, {"redis memory", 4 << 20}, {"keys", 20}, {"expiring keys", 20},
	{"files ", 10}, {"bytes redis", 40 << 20}, {"bytes ", 8 << 20},
}

// bar is the most that a value may be in the last quarter.
func bar(name string, second float64) float64 {
	for _, s := range slack {
		if strings.HasPrefix(name, s.prefix) {
			return 1.2*second + s.more
		}
	}
	return 1.2 * second
}

// judge compares the quarters and says whether the run is good.
func (r *report) judge() {
	r.Judged = r.Minutes >= leastMinutes
	for _, drained := range []bool{false, true} {
		second, last := r.medians(1, drained), r.medians(quarters-1, drained)
		for _, name := range sortedKeys(last) {
			g := growth{Name: name, State: "load", Second: second[name], Last: last[name], Bar: bar(name, second[name])}
			if drained {
				g.State = "drained"
			}
			if g.Why = r.unjudged(name); g.Why != "" || strings.HasPrefix(name, "expiry of ") {
				g.Bar, g.OK = 0, true
			} else {
				g.OK = g.Last <= g.Bar
			}
			r.Growth = append(r.Growth, g)
			if !g.OK && r.Judged {
				r.Problems = append(r.Problems, fmt.Sprintf("%s (%s) grew from %s to %s, the bar is %s",
					name, g.State, amount(name, g.Second), amount(name, g.Last), amount(name, g.Bar)))
			}
		}
		if r.Judged && (len(second) == 0 || len(last) == 0) {
			r.Problems = append(r.Problems, "there are no samples of the second or of the last quarter")
		}
	}
	for _, b := range r.Accounts {
		if b.Sent != b.Ended || b.Wrong > 0 || b.Sent == 0 && r.Judged {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %d sent, %d ended, %d of them wrong", b.Kind, b.Sent, b.Ended, b.Wrong))
		}
	}
	r.OK = len(r.Problems) == 0
}

// unjudged says why a value may grow for longer than a quarter.
func (r *report) unjudged(name string) string {
	if name == "redis memory of expiring keys" {
		return "these expire"
	}
	prefix, ok := strings.CutPrefix(name, "expiring keys ")
	if !ok {
		return ""
	}
	most := time.Duration(0)
	for _, s := range r.Samples {
		most = max(most, time.Duration(s.Values["expiry of "+prefix]*float64(time.Second)))
	}
	if most < time.Duration(r.Minutes)*time.Minute/quarters {
		return ""
	}
	return "expire after " + most.Round(time.Minute).String()
}

// medians are those of the values of a quarter, under load or drained. A value that a sample lacks counts as 0 if it
// is a count of keys or files, which are then none; others could not be measured.
func (r *report) medians(quarter int, drained bool) map[string]float64 {
	all := map[string][]float64{}
	n := 0
	for _, s := range r.Samples {
		if s.Quarter == quarter && s.Drained == drained {
			n++
			for name, v := range s.Values {
				all[name] = append(all[name], v)
			}
		}
	}
	out := map[string]float64{}
	for name, vs := range all {
		if strings.HasPrefix(name, "keys") || strings.HasPrefix(name, "expiring") || strings.HasPrefix(name, "files") || strings.HasPrefix(name, "bytes") {
			for len(vs) < n {
				vs = append(vs, 0)
			}
		}
		slices.Sort(vs)
		out[name] = (vs[(len(vs)-1)/2] + vs[len(vs)/2]) / 2
	}
	return out
}

func sortedKeys(m map[string]float64) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// amount writes a value with its unit.
func amount(name string, v float64) string {
	if strings.HasPrefix(name, "rss") || strings.HasPrefix(name, "bytes") || strings.HasPrefix(name, "redis memory") {
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// markdown is the report for people.
func (r *report) markdown() string {
	var b strings.Builder
	verdict := "good: all accounts balance"
	switch {
	case !r.OK:
		verdict = "NOT GOOD"
	case r.Judged:
		verdict += " and nothing grows"
	default:
		verdict += fmt.Sprintf("; growth is judged from %d minutes on", leastMinutes)
	}
	fmt.Fprintf(&b, "# Soak of %d minutes: %s\n\nBegan %s, took %s, seed %d, rate %d, %.2f cores in the median.\n\n",
		r.Minutes, verdict, r.Began.Format(time.RFC3339), r.Took, r.Seed, r.Rate, r.cpu())
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "* %s\n", strings.ReplaceAll(p, "\n", " "))
	}
	b.WriteString("\n| work | sent | ended | wrong |\n|---|---|---|---|\n")
	for _, k := range r.Accounts {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", k.Kind, k.Sent, k.Ended, k.Wrong)
	}
	b.WriteString("\n| fault | times |\n|---|---|\n")
	faults := map[string]float64{}
	for _, s := range r.Samples {
		if s.Fault != "" {
			words := strings.Fields(s.Fault)
			if words[0] == "freeze" {
				words = words[:len(words)-1]
			}
			faults[strings.Join(words, " ")]++
		}
	}
	for _, f := range sortedKeys(faults) {
		fmt.Fprintf(&b, "| %s | %g |\n", f, faults[f])
	}
	b.WriteString("\n| value | state | second quarter | last quarter | bar | |\n|---|---|---|---|---|---|\n")
	for _, g := range r.Growth {
		if strings.HasPrefix(g.Name, "expiry of ") || g.OK && g.Last <= g.Second && g.Last <= 2 && strings.Contains(g.Name, "keys ") {
			continue // in the JSON only
		}
		mark := cmp.Or(g.Why, "ok")
		if !g.OK {
			mark = "GREW"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", g.Name, g.State, amount(g.Name, g.Second), amount(g.Name, g.Last), amount(g.Name, g.Bar), mark)
	}
	return b.String()
}

// cpu is the median of the cores that the measured processes used under load.
func (r *report) cpu() float64 {
	var all []float64
	for _, s := range r.Samples {
		if !s.Drained {
			all = append(all, s.CPU)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
