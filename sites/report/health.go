package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/sites/definition"
	"muster/sites/fetch"
)

// HealthStatus is the health of a site's scrapes.
type HealthStatus string

// Health statuses, from best to worst.
const (
	Healthy  HealthStatus = "healthy"
	Degraded HealthStatus = "degraded"
	Critical HealthStatus = "critical"
)

// Severity orders the statuses: 0 for an unknown status, then 1 for Healthy to 3 for Critical.
func (s HealthStatus) Severity() int {
	return map[HealthStatus]int{Healthy: 1, Degraded: 2, Critical: 3}[s]
}

// worsen makes the status at least as bad as to.
func (s *HealthStatus) worsen(to HealthStatus) {
	if to.Severity() > s.Severity() {
		*s = to
	}
}

// Health is the health of a site after a job, compared with its jobs of the preceding seven days.
type Health struct {
	Site    string             `json:"site"`
	JobID   string             `json:"job_id"`
	At      time.Time          `json:"at"`
	Outcome string             `json:"outcome,omitempty"` // status of the job
	Status  HealthStatus       `json:"status"`
	Data    HealthStatus       `json:"data,omitempty"` // completeness of the records: the status without slowness
	Success float64            `json:"success"`        // share of pages that did not fail, including missing pages
	Errors  float64            `json:"errors"`         // share of pages that failed
	Blocks  float64            `json:"blocks"`         // share of pages that were blocked
	Gone    float64            `json:"gone"`           // share of missing pages, without the ends of numbered pages
	Mean    float64            `json:"response_ms"`    // mean
	Records int                `json:"records"`
	Fields  map[string]float64 `json:"fields,omitempty"`  // share of records that have each field
	Before  map[string]float64 `json:"before,omitempty"`  // mean of Fields in the earlier jobs
	Alerts  []string           `json:"alerts,omitempty"`  // reasons for not being healthy
	Notices []string           `json:"notices,omitempty"` // noteworthy, but not unhealthy
	Limited bool               `json:"limited,omitempty"` // the job had a limit or failed to start, so its number of records is not comparable
}

// Baseline is the maximum age of jobs for comparison.
const Baseline = 7 * 24 * time.Hour

// Maximum shares of pages or records that a healthy and a degraded job may lose.
const (
	healthyLoss  = 0.05
	degradedLoss = 0.15
)

// thresholds are the maximum values of a healthy and a degraded site.
var thresholds = []struct {
	name              string
	of                func(*Health) float64
	healthy, degraded float64
	format            string
	slow              bool // affects time, not data
}{
	{"errors", func(h *Health) float64 { return h.Errors }, healthyLoss, degradedLoss, "%.0f %%", false},
	{"blocked", func(h *Health) float64 { return h.Blocks }, 0.02, 0.05, "%.0f %%", false},
	{"gone", func(h *Health) float64 { return h.Gone }, 0.10, 1, "%.0f %%", false},
	{"mean response", func(h *Health) float64 { return h.Mean / 1000 / 100 }, 0.02, 0.05, "%.1f s", true},
}

// Judge computes the health of a site from the summary of a job that ended at a time, compared with the jobs of the last seven
// days. limited means that the sender limited the job.
func Judge(def *definition.Definition, s *Summary, limited bool, at time.Time, before []Health) Health {
	h := measure(s, limited || len(s.Limits) > 0, at)
	h.Status, h.Data, h.Before = Healthy, Healthy, meanFields(before)
	h.checkThresholds()
	if s.Status != StatusComplete {
		h.loss(Degraded, "job status %s", s.Status)
	}
	h.comparePages(before)
	was := len(h.Alerts) + len(h.Notices)
	h.checkRecords(def, s, before)
	h.checkFaults(s)
	h.compareCoverage()
	if len(h.Alerts)+len(h.Notices) > was {
		const look = "check current pages with muster sites check --live %[1]s"
		if h.Data == Healthy {
			h.notice(look, h.Site)
		} else {
			h.Alerts = append(h.Alerts, fmt.Sprintf(look, h.Site))
		}
	}
	return h
}

// FailedHealth returns the health of a site after a job that failed without a result: the site is down, rejects all requests or
// has moved.
func FailedHealth(site, job string, at time.Time, why string) Health {
	return Health{Site: site, JobID: job, At: at, Outcome: "FAILED", Status: Critical, Data: Critical, Errors: 1, Limited: true, Alerts: []string{"the scrape failed: " + why}}
}

// measure computes the metrics of a job.
func measure(s *Summary, limited bool, at time.Time) Health {
	h := Health{Site: s.Site, JobID: s.JobID, At: at, Outcome: s.Status, Records: s.Records, Fields: s.Coverage(), Limited: limited, Success: 1}
	all := s.Pages + s.Errors + s.Skipped
	if all > 0 {
		n := float64(all)
		h.Errors = float64(s.Errors) / n
		h.Success = 1 - h.Errors
		h.Gone = float64(s.ByClass[fetch.Gone]-s.Ends) / n
		h.Blocks = float64(s.ByClass[fetch.Blocked]+s.ByClass[fetch.SoftBlock]) / n
	}
	if s.Response != nil {
		h.Mean = s.Response.Mean * 1000
	}
	return h
}

// slow adds an alert about time.
func (h *Health) slow(to HealthStatus, format string, args ...any) {
	h.Status.worsen(to)
	h.Alerts = append(h.Alerts, fmt.Sprintf(format, args...))
}

// loss adds an alert about data.
func (h *Health) loss(to HealthStatus, format string, args ...any) {
	h.Data.worsen(to)
	h.slow(to, format, args...)
}

func (h *Health) notice(format string, args ...any) {
	h.Notices = append(h.Notices, fmt.Sprintf(format, args...))
}

func (h *Health) checkThresholds() {
	for _, t := range thresholds {
		v, to, add := t.of(h), Degraded, h.loss
		if v > t.degraded {
			to = Critical
		}
		if t.slow {
			add = h.slow
		}
		if v > t.healthy {
			add(to, "%s: %s; the healthy maximum is %s", t.name, fmt.Sprintf(t.format, v*100), fmt.Sprintf(t.format, t.healthy*100))
		}
	}
}

// comparePages compares with the mean of the earlier jobs. A fifth worse is noteworthy.
func (h *Health) comparePages(before []Health) {
	if len(before) == 0 {
		return
	}
	var success, response float64
	for _, b := range before {
		success += b.Success / float64(len(before))
		response += b.Mean / float64(len(before))
	}
	if h.Success < 0.8*success {
		h.loss(Degraded, "%.0f %% of the pages were fetched; mean of the last seven days: %.0f %%", h.Success*100, success*100)
	}
	// Response times of a fast site vary by more.
	if response > 0 && h.Mean > 1.2*response && h.Mean-response > 500 {
		h.slow(Degraded, "mean response: %.1f s; mean of the last seven days: %.1f s", h.Mean/1000, response/1000)
	}
}

// checkRecords judges the number of records in total and by type.
func (h *Health) checkRecords(def *definition.Definition, s *Summary, before []Health) {
	records, runs := 0, 0
	for _, b := range before {
		if !b.Limited {
			records += b.Records
			runs++
		}
	}
	mean := float64(records) / float64(max(runs, 1))
	switch {
	case h.Records == 0:
		h.loss(Critical, "no records (pages: %d fetched, %d skipped, %d errors)", s.Pages, s.Skipped, s.Errors)
		return
	case !h.Limited && mean >= 10 && float64(h.Records) < mean/2:
		h.loss(Critical, "%d records; mean of the last seven days: %.0f", h.Records, mean)
	}
	if len(s.Limits) > 0 { // the job may have ended before the pages of a type
		return
	}
	for i := range def.Records {
		r := &def.Records[i]
		everyPage := r.Each.IsZero() && r.EachJSON.IsZero()
		switch {
		case s.ByType[r.Name] > 0:
		case everyPage:
			h.loss(Degraded, "no %s records; every %s page should yield one", r.Name, r.From)
		case !h.Limited && hasType(h.Before, r.Name):
			h.loss(Degraded, "no %s records, unlike in the last seven days", r.Name)
		}
	}
}

// hasType reports whether there were records of a type, according to the shares of their fields.
func hasType(shares map[string]float64, typ string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(shares)), func(field string) bool { return strings.HasPrefix(field, typ+".") })
}

// checkFaults judges the faults of fields.
func (h *Health) checkFaults(s *Summary) {
	for _, field := range slices.Sorted(maps.Keys(s.Faults)) {
		f, of := s.Faults[field], 0
		for _, n := range s.Fields[field] {
			of += n
		}
		of = max(of, f.Invalid+f.Unparsed)
		const invalid = "field %s: invalid in %d of %d records (%s)"
		switch share := float64(f.Invalid) / float64(of); {
		case share > degradedLoss:
			h.loss(Critical, invalid, field, f.Invalid, of, f.Example)
		case share > healthyLoss:
			h.loss(Degraded, invalid, field, f.Invalid, of, f.Example)
		case f.Invalid > 0:
			h.notice(invalid, field, f.Invalid, of, f.Example)
		}
		const unparsed = "field %s: unparsable text dropped in %d of %d records (%s)"
		switch {
		case 2*f.Unparsed > of: // the definition has a wrong type
			h.loss(Degraded, unparsed, field, f.Unparsed, of, f.Example)
		case f.Unparsed > 0:
			h.notice(unparsed, field, f.Unparsed, of, f.Example)
		}
	}
}

// compareCoverage compares the coverage of each field with the earlier jobs.
func (h *Health) compareCoverage() {
	for _, field := range slices.Sorted(maps.Keys(h.Before)) {
		if share, ok := h.Fields[field]; ok && h.Before[field]-share > 0.2 {
			h.loss(Degraded, "field %s: found in %.0f %% of the records; earlier jobs: %.0f %%", field, share*100, h.Before[field]*100)
		}
	}
}

// meanFields returns the mean share of records with each field.
func meanFields(before []Health) map[string]float64 {
	sums, counts := map[string]float64{}, map[string]int{}
	for _, b := range before {
		for field, share := range b.Fields {
			sums[field] += share
			counts[field]++
		}
	}
	for field := range sums {
		sums[field] /= float64(counts[field])
	}
	return sums
}
