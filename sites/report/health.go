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

// HealthStatus is how well the scrape of a site works.
type HealthStatus string

// The health of a site, from best to worst.
const (
	Healthy  HealthStatus = "healthy"
	Degraded HealthStatus = "degraded"
	Critical HealthStatus = "critical"
)

// Severity orders the statuses: 0 when it is not known, then 1 for Healthy up
// to 3 for Critical.
func (s HealthStatus) Severity() int {
	return map[HealthStatus]int{Healthy: 1, Degraded: 2, Critical: 3}[s]
}

// worsen makes the status at least as bad as to.
func (s *HealthStatus) worsen(to HealthStatus) {
	if to.Severity() > s.Severity() {
		*s = to
	}
}

// Health is how well the last job of a site worked, also compared with its jobs
// of the seven days before.
type Health struct {
	Site    string             `json:"site"`
	JobID   string             `json:"job_id"`
	At      time.Time          `json:"at"`
	Status  HealthStatus       `json:"status"`
	Data    HealthStatus       `json:"data,omitempty"` // how complete the records are: the status without what was only slow
	Success float64            `json:"success"`        // share of pages that did not fail; one that is gone counts
	Errors  float64            `json:"errors"`         // share of pages that failed
	Blocks  float64            `json:"blocks"`         // share of pages that were blocked
	Gone    float64            `json:"gone"`           // share of pages that do not exist, without the last one of a count
	Mean    float64            `json:"response_ms"`    // mean
	Records int                `json:"records"`
	Fields  map[string]float64 `json:"fields,omitempty"`  // share of records that have each field
	Before  map[string]float64 `json:"before,omitempty"`  // the same, in the mean of the jobs before
	Alerts  []string           `json:"alerts,omitempty"`  // why it is not healthy
	Notices []string           `json:"notices,omitempty"` // worth a look, but no reason to call it unhealthy
	Limited bool               `json:"limited,omitempty"` // the job had a limit or could not begin: its number of records means nothing
}

// Baseline is how far back the jobs go that a job is compared with.
const Baseline = 7 * 24 * time.Hour

// Up to this share of its pages, or of its records, a job may lose and be
// healthy, or degraded.
const (
	healthyLoss  = 0.05
	degradedLoss = 0.15
)

// thresholds say up to which value a site is healthy, and up to which degraded.
var thresholds = []struct {
	name              string
	of                func(*Health) float64
	healthy, degraded float64
	format            string
	slow              bool // it costs time, and no data
}{
	{"errors", func(h *Health) float64 { return h.Errors }, healthyLoss, degradedLoss, "%.0f %%", false},
	{"blocked", func(h *Health) float64 { return h.Blocks }, 0.02, 0.05, "%.0f %%", false},
	{"gone", func(h *Health) float64 { return h.Gone }, 0.10, 1, "%.0f %%", false},
	{"mean response", func(h *Health) float64 { return h.Mean / 1000 / 100 }, 0.02, 0.05, "%.1f s", true},
}

// Judge computes the health of a site from the summary of a job, which ended at
// a time, and compares it with the health in the jobs of the last seven days.
// limited says that the sender limited the job.
func Judge(def *definition.Definition, s *Summary, limited bool, at time.Time, before []Health) Health {
	h := measure(s, limited || len(s.Limits) > 0, at)
	h.Status, h.Data, h.Before = Healthy, Healthy, meanFields(before)
	h.checkThresholds()
	if s.Status != StatusComplete {
		h.loss(Degraded, "the job is %s", s.Status)
	}
	h.comparePages(before)
	was := len(h.Alerts) + len(h.Notices)
	h.checkRecords(def, s, before)
	h.checkFaults(s)
	h.compareCoverage()
	if len(h.Alerts)+len(h.Notices) > was {
		const look = "see what pages yield now with muster sites check --live %[1]s, and what saved pages do with muster sites test %[1]s"
		if h.Data == Healthy {
			h.notice(look, h.Site)
		} else {
			h.Alerts = append(h.Alerts, fmt.Sprintf(look, h.Site))
		}
	}
	return h
}

// FailedHealth returns the health of a site whose job failed at a time without a result: the site is down, rejects
// everything or has moved.
func FailedHealth(site, job string, at time.Time, why string) Health {
	return Health{Site: site, JobID: job, At: at, Status: Critical, Data: Critical, Errors: 1, Limited: true, Alerts: []string{"the scrape failed: " + why}}
}

// measure returns the numbers of a job.
func measure(s *Summary, limited bool, at time.Time) Health {
	h := Health{Site: s.Site, JobID: s.JobID, At: at, Records: s.Records, Fields: s.Coverage(), Limited: limited, Success: 1}
	all := s.Pages + s.Errors + s.Skipped
	if all > 0 {
		n := float64(all)
		h.Errors = float64(s.Errors) / n
		h.Success = 1 - h.Errors
		h.Gone = float64(s.ByClass[fetch.Gone]-s.Ends) / n
		h.Blocks = float64(s.ByClass[fetch.Blocked]+s.ByClass[fetch.SoftBlock]) / n
	}
	h.Mean = float64(s.Times.Mean()) / 1e6
	return h
}

// slow adds a reason that costs time and no data.
func (h *Health) slow(to HealthStatus, format string, args ...any) {
	h.Status.worsen(to)
	h.Alerts = append(h.Alerts, fmt.Sprintf(format, args...))
}

// loss adds a reason that costs data.
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
			add(to, "%s: %s; up to %s is healthy", t.name, fmt.Sprintf(t.format, v*100), fmt.Sprintf(t.format, t.healthy*100))
		}
	}
}

// comparePages compares with the mean of the jobs before: a fifth worse is worth a look.
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
		h.loss(Degraded, "%.0f %% of the pages were fetched, where the last seven days had %.0f %% in the mean", h.Success*100, success*100)
	}
	// Times of a site that is quick vary by more than that.
	if response > 0 && h.Mean > 1.2*response && h.Mean-response > 500 {
		h.slow(Degraded, "mean response: %.1f s, where the last seven days had %.1f s in the mean", h.Mean/1000, response/1000)
	}
}

// checkRecords judges how many records there are, of all types and of each.
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
		h.loss(Critical, "%d records, where the last seven days had %.0f in the mean", h.Records, mean)
	}
	if len(s.Limits) > 0 { // it may have ended before the pages of a type
		return
	}
	for i := range def.Records {
		r := &def.Records[i]
		everyPage := r.Each.IsZero() && r.EachJSON.IsZero() && r.If.IsZero()
		switch {
		case s.ByType[r.Name] > 0:
		case everyPage:
			h.loss(Degraded, "no %s records; every %s page should yield one", r.Name, r.From)
		case !h.Limited && hasType(h.Before, r.Name):
			h.loss(Degraded, "no %s records, where the last seven days had some", r.Name)
		}
	}
}

// hasType reports whether there were records of a type, by the shares of their fields.
func hasType(shares map[string]float64, typ string) bool {
	for field := range shares {
		if strings.HasPrefix(field, typ+".") {
			return true
		}
	}
	return false
}

// checkFaults judges what was wrong with fields.
func (h *Health) checkFaults(s *Summary) {
	for _, field := range slices.Sorted(maps.Keys(s.Faults)) {
		f, of := s.Faults[field], 0
		for _, n := range s.Fields[field] {
			of += n
		}
		of = max(of, f.Invalid+f.Unparsed)
		const invalid = "field %s: %d of %d records are invalid by it (%s)"
		switch share := float64(f.Invalid) / float64(of); {
		case share > degradedLoss:
			h.loss(Critical, invalid, field, f.Invalid, of, f.Example)
		case share > healthyLoss:
			h.loss(Degraded, invalid, field, f.Invalid, of, f.Example)
		case f.Invalid > 0:
			h.notice(invalid, field, f.Invalid, of, f.Example)
		}
		const unparsed = "field %s: in %d of %d records its text cannot be read and is left out (%s)"
		switch {
		case 2*f.Unparsed > of: // the definition takes it for something else than it is
			h.loss(Degraded, unparsed, field, f.Unparsed, of, f.Example)
		case f.Unparsed > 0:
			h.notice(unparsed, field, f.Unparsed, of, f.Example)
		}
	}
}

// compareCoverage compares how often each field was found with the jobs before.
func (h *Health) compareCoverage() {
	for _, field := range slices.Sorted(maps.Keys(h.Before)) {
		if share, ok := h.Fields[field]; ok && h.Before[field]-share > 0.2 {
			h.loss(Degraded, "field %s: found in %.0f %% of the records, before in %.0f %%", field, share*100, h.Before[field]*100)
		}
	}
}

// meanFields is the mean share of records that have each field.
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
