package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"muster/internal/counts"
)

// Text formats the summary: fetched and written data, failures with reasons, and changes since earlier jobs.
func (s *Summary) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0) // an empty line separates tables
	s.writeTotals(w)
	s.writeFields(w)
	s.writeGroups(w)
	_ = w.Flush() // to a Builder
	if s.Failed != "" {
		fmt.Fprintf(&b, "\nall failed pages: %s\nretry: muster scrapes retry %s\n", s.Failed, s.JobID)
	}
	return b.String()
}

func (s *Summary) writeTotals(w io.Writer) {
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("site", "%s, job %s: %s, %s", s.Site, s.JobID, s.Status, cmp.Or(string(s.Health.Status), "unknown health"))
	row("time", "%.1f s, %.1f pages/s", s.Seconds, float64(s.Pages+s.Errors+s.Skipped)/max(s.Seconds, 0.001))
	known := ""
	if s.Known > 0 {
		known = fmt.Sprintf("%d known and unchanged, ", s.Known)
	}
	row("pages", "%d fetched (%.1f MB), %s%d skipped, %d errors", s.Pages-s.Known, float64(s.Bytes)/1e6, known, s.Skipped, s.Errors)
	if p := s.Response; p != nil {
		row("response", "p50 %.3f s, p95 %.3f s, p99 %.3f s", p.P50, p.P95, p.P99)
	}
	row("records", "%d extracted, %d invalid, %d duplicates, %d written: %d new, %d changed, %d unchanged; %d gone",
		s.Extracted, s.Invalid, max(s.Extracted-s.Records, 0), s.Records, s.Changes.New, s.Changes.Changed, s.Changes.Unchanged, s.Changes.Gone)
	if s.Outside > 0 {
		row("outside", "%d URLs in sitemaps are not in hosts or scope", s.Outside)
	}
	if s.Duplicates > 0 {
		row("same pages", "%d pages duplicate another page, such as %s", s.Duplicates, s.DuplicateExample)
	}
	if s.Proxies != nil {
		row("proxies", "%s", s.Proxies)
	}
	if s.Sessions != nil {
		row("sessions", "ended: %s", cmp.Or(counts.Text(s.Sessions), "none"))
	}
	if len(s.Delays) > 0 {
		row("delays", "%s", counts.Text(s.Delays))
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
}

func (s *Summary) writeFields(w io.Writer) {
	coverage := s.Coverage()
	if len(coverage) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFIELD\tFOUND\tBEFORE\tINVALID\tUNPARSED\tDRIFT\n")
	drifted := s.Drifted()
	for _, field := range slices.Sorted(maps.Keys(coverage)) {
		before, drift, fault := "-", "", s.Faults[field]
		if was, ok := s.Health.Before[field]; ok {
			before = fmt.Sprintf("%.0f %%", was*100)
		}
		if slices.Contains(drifted, field) {
			drift = "mostly from a fallback; check the first selector"
		}
		fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%d\t%d\t%s\n", field, coverage[field]*100, before, fault.Invalid, fault.Unparsed, drift)
	}
}

func (s *Summary) writeGroups(w io.Writer) {
	if len(s.Groups) == 0 {
		return
	}
	fmt.Fprintf(w, "\nPAGES\tCLASS\tWHY\tFOR EXAMPLE\n")
	groups := slices.Clone(s.Groups)
	slices.SortStableFunc(groups, func(a, b Group) int { return b.Pages - a.Pages })
	for _, g := range groups {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", g.Pages, g.Class, strings.Join(strings.Fields(g.Error), " "), g.Example)
	}
}
