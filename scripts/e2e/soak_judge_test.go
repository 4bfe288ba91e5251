//go:build e2e && unix

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// quarters is the number of parts of a run. The second part is compared with the last one, because caches fill during the first.
const quarters = 4

// report is the result of a soak, or of an interrupted one so far.
type report struct {
	OK       bool            `json:"ok"`
	Minutes  int             `json:"minutes"`
	Seed     uint64          `json:"seed"`
	Rate     int             `json:"rate"`
	Began    time.Time       `json:"began"`
	Seconds  int             `json:"seconds"`  // duration so far, without interruptions
	Quarter  int             `json:"quarter"`  // current quarter, from 0
	Sequence int             `json:"sequence"` // of the last sent work
	Known    map[string]bool `json:"known"`    // scrapes, and workflows listed as finished twice
	Resumed  int             `json:"resumed"`  // number of interruptions
	Accounts []book          `json:"accounts"`
	Faults   map[string]int  `json:"faults"`
	Growth   []growth        `json:"growth"`
	Judged   bool            `json:"judged"` // the run was long enough to judge growth
	Problems []string        `json:"problems"`
	Samples  []sample        `json:"samples"`
}

func (r *report) elapsed() time.Duration { return time.Duration(r.Seconds) * time.Second }

// growth compares a value in the second and in the last quarter.
type growth struct {
	Name   string  `json:"name"`
	State  string  `json:"state"` // load or drained
	Second float64 `json:"second"`
	Last   float64 `json:"last"`
	Bar    float64 `json:"bar"`
	OK     bool    `json:"ok"`
	Why    string  `json:"why,omitempty"` // reason for skipping the value
}

// leastMinutes is the minimum duration of a run for judging growth. In shorter runs, data with a retention of minutes still
// accumulates.
const leastMinutes = 20

// slack is the allowed growth in addition to 20%, for these reasons:
//
//   - rss: garbage collection and memory that the kernel has not reclaimed
//   - goroutines and fds: connection pools that grow to their size at random
//   - redis memory: lists of the last 10,000 workflows per state, and hourly and daily statistics
//   - keys: proxies that refreshes add or remove, running work, and new hours
//   - bytes: logs up to their maximum size, and append-only data until the next rewrite
var slack = []struct {
	prefix string
	more   float64
}{
	{"rss ", 16 << 20}, {"goroutines ", 25}, {"fds ", 15}, {"redis memory", 4 << 20}, {"keys", 20}, {"expiring keys", 20},
	{"files ", 10}, {"bytes redis", 40 << 20}, {"bytes ", 8 << 20},
}

// bar returns the maximum value for the last quarter.
func bar(name string, second float64) float64 {
	for _, s := range slack {
		if strings.HasPrefix(name, s.prefix) {
			return 1.2*second + s.more
		}
	}
	return 1.2 * second
}

// judge compares the quarters and sets OK and Problems.
func (r *report) judge() {
	r.Judged = r.Minutes >= leastMinutes
	for _, drained := range []bool{false, true} {
		second, last := r.medians(1, drained), r.medians(quarters-1, drained)
		for _, name := range slices.Sorted(maps.Keys(last)) {
			g := growth{Name: name, State: "load", Second: second[name], Last: last[name], Bar: bar(name, second[name])}
			if drained {
				g.State = "drained"
			}
			g.Why = r.unjudged(name)
			g.OK = g.Why != "" || g.Last <= g.Bar
			r.Growth = append(r.Growth, g)
			if !g.OK && r.Judged {
				r.Problems = append(r.Problems, fmt.Sprintf("%s (%s) grew from %s to %s, the bar is %s",
					name, g.State, amount(name, g.Second), amount(name, g.Last), amount(name, g.Bar)))
			}
		}
		if r.Judged && (len(second) == 0 || len(last) == 0) {
			r.Problems = append(r.Problems, "no samples in the second or the last quarter")
		}
	}
	for _, b := range r.Accounts {
		if b.Sent != b.Ended || b.Wrong > 0 || b.Sent == 0 && r.Judged {
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %d sent, %d finished, %d wrong", b.Kind, b.Sent, b.Ended, b.Wrong))
		}
	}
	r.OK = len(r.Problems) == 0
}

// unjudged returns the reason why a value may grow for longer than a quarter, or "".
func (r *report) unjudged(name string) string {
	switch {
	case name == "redis memory of expiring keys":
		return "these expire"
	case name == "cores", strings.HasPrefix(name, "expiry of "):
		return "not judged"
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

// medians returns the medians of the values in a quarter, under load or drained. Missing counts of keys and files are 0; other
// missing values could not be measured and are ignored.
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

// amount formats a value with its unit.
func amount(name string, v float64) string {
	if strings.HasPrefix(name, "rss") || strings.HasPrefix(name, "bytes") || strings.HasPrefix(name, "redis memory") {
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	if name == "cores" {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// markdown renders the report as Markdown.
func (r *report) markdown() string {
	var b strings.Builder
	verdict := "passed: all accounts balance"
	switch {
	case !r.OK:
		verdict = "FAILED"
	case r.Judged:
		verdict += " without growth"
	default:
		verdict += fmt.Sprintf("; growth requires at least %d minutes", leastMinutes)
	}
	fmt.Fprintf(&b, "# Soak of %d minutes: %s\n\nBegan %s, took %s, resumed %d times, seed %d, rate %d.\n\n",
		r.Minutes, verdict, r.Began.Format(time.RFC3339), r.elapsed(), r.Resumed, r.Seed, r.Rate)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "* %s\n", strings.ReplaceAll(p, "\n", " "))
	}
	b.WriteString("\n| work | sent | ended | wrong |\n|---|---|---|---|\n")
	for _, k := range r.Accounts {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", k.Kind, k.Sent, k.Ended, k.Wrong)
	}
	b.WriteString("\n| fault | times |\n|---|---|\n")
	for _, f := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", f, r.Faults[f])
	}
	b.WriteString("\n| value | state | second quarter | last quarter | bar | |\n|---|---|---|---|---|---|\n")
	for _, g := range r.Growth {
		if strings.HasPrefix(g.Name, "expiry of ") || g.OK && g.Last <= g.Second && g.Last <= 2 && strings.Contains(g.Name, "keys ") {
			continue // only in the JSON file
		}
		mark := cmp.Or(g.Why, "ok")
		if !g.OK {
			mark = "GREW"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", g.Name, g.State, amount(g.Name, g.Second), amount(g.Name, g.Last), amount(g.Name, g.Bar), mark)
	}
	return b.String()
}

// reportOf returns the report of a run of 40 minutes with one value, which is of(quarter) in each quarter.
func reportOf(name string, of func(quarter int) float64) *report {
	r := &report{Minutes: 40, Accounts: []book{{Kind: kindFlow, Sent: 3, Ended: 3}}}
	for q := range quarters {
		for range 3 {
			for _, drained := range []bool{false, true} {
				r.Samples = append(r.Samples, sample{Quarter: q, Drained: drained, Values: map[string]float64{name: of(q), "fds redis": 5}})
			}
		}
	}
	return r
}

func TestSoakFindsGrowth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		second, last float64
		ok           bool
	}{
		{"rss orchestrator", 100 << 20, 130 << 20, true},
		{"rss orchestrator", 100 << 20, 150 << 20, false},
		{"goroutines queue run", 30, 60, true},
		{"goroutines queue run", 30, 90, false},
		{"fds worker-1", 20, 60, false},
		{"keys muster:*:w:*", 100, 300, false},
		{"new keys", 0, 100, false},
		{"files data/records", 10, 40, false},
		{"redis memory", 4 << 20, 20 << 20, false},
		{"expiring keys muster:*:w:*", 100, 300, false},
	} {
		r := reportOf(c.name, func(q int) float64 {
			switch q {
			case 1:
				return c.second
			case quarters - 1:
				return c.last
			}
			return 0
		})
		if r.judge(); r.OK != c.ok {
			t.Errorf("%s from %g to %g: got good %t, want %t: %v", c.name, c.second, c.last, r.OK, c.ok, r.Problems)
		}
		if text := r.markdown(); strings.Contains(text, "FAILED") == c.ok || !strings.Contains(text, c.name) {
			t.Errorf("the growth is not in the table:\n%s", text)
		}
	}
}

func TestSoakLetsKeysGrowThatExpireLater(t *testing.T) {
	t.Parallel()
	for expiry, ok := range map[time.Duration]bool{time.Hour: true, 5 * time.Minute: false} {
		r := reportOf("expiring keys x", func(q int) float64 { return float64(100 * q) })
		for i := range r.Samples {
			r.Samples[i].Values["expiry of x"] = expiry.Seconds()
		}
		if r.judge(); r.OK != ok {
			t.Errorf("keys that expire after %s: got good %t, want %t: %v", expiry, r.OK, ok, r.Problems)
		}
	}
}

func TestSoakFindsImbalance(t *testing.T) {
	t.Parallel()
	for _, b := range []book{{kindItem, 5, 4, 0}, {kindItem, 5, 5, 1}, {kindItem, 5, 6, 0}, {kindItem, 0, 0, 0}} {
		r := reportOf("fds worker-1", func(int) float64 { return 1 })
		r.Accounts = append(r.Accounts, b)
		if r.judge(); r.OK {
			t.Errorf("%+v: got no problem", b)
		}
	}
}
