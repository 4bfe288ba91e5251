package sites

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"muster/sites/fetch"
)

// Group is the pages that failed for one reason.
type Group struct {
	Class   fetch.Class `json:"class"`
	Error   string      `json:"error"` // with # for numbers that are no status
	Pages   int         `json:"pages"`
	Example string      `json:"example"` // the URL of one
}

const maxGroups = 50

var digits = regexp.MustCompile(`[0-9]+`)

// group adds a page that failed, or pages that another has grouped.
func (c *Counts) group(g Group) {
	g.Error = digits.ReplaceAllStringFunc(g.Error, func(n string) string {
		if len(n) == 3 && n[0] >= '1' && n[0] <= '5' {
			return n // an HTTP status
		}
		return "#"
	})
	if len(g.Error) > 200 {
		g.Error = strings.ToValidUTF8(g.Error[:200], "") + "…"
	}
	for i := range c.Groups {
		if o := &c.Groups[i]; o.Class == g.Class && o.Error == g.Error {
			o.Pages += g.Pages
			return
		}
	}
	if len(c.Groups) < maxGroups {
		c.Groups = append(c.Groups, g)
	}
}

// times is how long pages took: how many by the logarithm of their
// milliseconds, so that the times of many chunks add up.
type times map[int]int

const timesBase = 1.1

func (t *times) add(d time.Duration) {
	if *t == nil {
		*t = times{}
	}
	(*t)[int(math.Ceil(math.Log(max(float64(d)/1e6, 1))/math.Log(timesBase)))]++
}

// quantile is the time that a share q of the pages did not exceed, to 10 %.
func (t times) quantile(q float64) time.Duration {
	all := 0
	for _, n := range t {
		all += n
	}
	left := int(math.Ceil(q * float64(all)))
	for _, b := range slices.Sorted(maps.Keys(t)) {
		if left -= t[b]; left <= 0 {
			return time.Duration(math.Pow(timesBase, float64(b)) * 1e6)
		}
	}
	return 0
}

func (t times) mean() time.Duration {
	sum, n := 0.0, 0
	for b, of := range t {
		sum += float64(of) * math.Pow(timesBase, float64(b))
		n += of
	}
	if n == 0 {
		return 0
	}
	return time.Duration(sum / float64(n) * 1e6)
}

// Report is the summary for people: what came, what did not and why, and what
// is not as it was.
func (s *Summary) Report() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("site", "%s, job %s: %s, %s", s.Site, s.JobID, s.Status, cmp.Or(string(s.Health.Status), "health not known"))
	row("time", "%.1f s, %.1f pages/s", s.Seconds, s.rate())
	row("pages", "%d had (%.1f MB), %d skipped, %d errors", s.Pages, float64(s.Bytes)/1e6, s.Skipped, s.Errors)
	if len(s.Times) > 0 {
		row("response", "p50 %s, p95 %s, p99 %s", round(s.Times.quantile(0.5)), round(s.Times.quantile(0.95)), round(s.Times.quantile(0.99)))
	}
	row("records", "%d extracted, %d invalid, %d twice, %d written: %d new, %d changed, %d unchanged; %d gone",
		s.Extracted, s.Invalid, max(s.Extracted-s.Records, 0), s.Records, s.Changes.New, s.Changes.Changed, s.Changes.Unchanged, s.Changes.Gone)
	if s.Duplicates > 0 {
		row("duplicates", "%d pages have the content of another page, such as %s", s.Duplicates, s.DuplicateExample)
	}
	if w := s.Ways; w != nil {
		worst := ""
		if len(w.Worst) > 0 {
			worst = fmt.Sprintf("; worst %s with %d of %d", w.Worst[0].Proxy, w.Worst[0].Failures, w.Worst[0].Answers)
		}
		row("proxies", "%d used, %d answers, %d of them no page%s", w.Proxies, w.Answers, w.Failures, worst)
	}
	if s.Sessions != nil {
		row("sessions", "%s", sessionsText(s.Sessions))
	}
	if len(s.Delays) > 0 {
		row("delays", "%s", countsText(s.Delays))
	}
	if s.Breaker != "" {
		row("breaker", "%s", s.Breaker)
	}
	for _, alert := range s.Health.Alerts {
		row("ALERT", "%s", alert)
	}
	for _, notice := range s.Health.Notices {
		row("notice", "%s", notice)
	}
	for _, why := range s.Limits {
		row("limit", "%s; there may be more", why)
	}
	for _, why := range s.Missing {
		row("missing", "%s", why)
	}
	_ = w.Flush() // to a Builder
	if coverage := s.Coverage(); len(coverage) > 0 {
		fmt.Fprintf(w, "\nFIELD\tFOUND\tBEFORE\tINVALID\tUNPARSED\tDRIFT\n")
		drifted := s.Drifted()
		for _, field := range slices.Sorted(maps.Keys(coverage)) {
			before, drift, fault := "-", "", s.Faults[field]
			if was, ok := s.Health.Before[field]; ok {
				before = fmt.Sprintf("%.0f %%", was*100)
			}
			if slices.Contains(drifted, field) {
				drift = "mostly by a fall-back: look at the first selector"
			}
			fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%d\t%d\t%s\n", field, coverage[field]*100, before, fault.Invalid, fault.Unparsed, drift)
		}
		_ = w.Flush()
	}
	if len(s.Groups) > 0 {
		fmt.Fprintf(w, "\nPAGES\tCLASS\tWHY\tFOR EXAMPLE\n")
		groups := slices.Clone(s.Groups)
		slices.SortStableFunc(groups, func(a, b Group) int { return b.Pages - a.Pages })
		for _, g := range groups {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", g.Pages, g.Class, oneLine(g.Error), g.Example)
		}
		_ = w.Flush()
	}
	if s.Failed != "" {
		fmt.Fprintf(&b, "\nall failed pages: %s\nget them: muster jobs retry %s\n", s.Failed, s.JobID)
	}
	return b.String()
}

func sessionsText(ends map[string]int) string {
	if len(ends) == 0 {
		return "none had to end"
	}
	return "ended: " + countsText(ends)
}

func (s *Summary) rate() float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return float64(s.Pages+s.Errors+s.Skipped) / s.Seconds
}

func round(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// oneLine makes a text a cell of a table.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
