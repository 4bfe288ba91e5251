package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/internal/store"
)

// HealthStatus is how a site does.
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

// Health is how a site did in its last job, also against those of the seven
// days before.
type Health struct {
	Site    string             `json:"site"`
	JobID   string             `json:"job_id"`
	At      time.Time          `json:"at"`
	Status  HealthStatus       `json:"status"`
	Data    HealthStatus       `json:"data,omitempty"` // how complete the records are: the status without what was only slow
	Success float64            `json:"success"`        // share of pages that were had; one that is gone, or unchanged, counts
	Errors  float64            `json:"errors"`         // share of pages that were not
	Blocks  float64            `json:"blocks"`         // share of pages that were refusals
	Mean    float64            `json:"response_ms"`    // mean
	Records int                `json:"records"`
	Fields  map[string]float64 `json:"fields,omitempty"`  // share of records that have each field
	Before  map[string]float64 `json:"before,omitempty"`  // the same, in the mean of the jobs before
	Alerts  []string           `json:"alerts,omitempty"`  // why it is not healthy
	Notices []string           `json:"notices,omitempty"` // what is worth a look, and no reason to call it unhealthy
	Limited bool               `json:"limited,omitempty"` // the job had a limit: its number of records tells nothing
}

const (
	baseline = 7 * 24 * time.Hour
	maxRuns  = 200 // of a site, that a baseline is made of
)

// Up to this share of its pages, or of its records, a job may lose and be
// healthy, or degraded.
const (
	healthyLoss  = 0.05
	degradedLoss = 0.15
)

// thresholds are up to where a site is healthy, and up to where degraded.
var thresholds = []struct {
	name              string
	of                func(Health) float64
	healthy, degraded float64
	format            string
	slow              bool // it costs time, and no data
}{
	{"errors", func(h Health) float64 { return h.Errors }, healthyLoss, degradedLoss, "%.0f %%", false},
	{"refusals", func(h Health) float64 { return h.Blocks }, 0.02, 0.05, "%.0f %%", false},
	{"mean response", func(h Health) float64 { return h.Mean / 1000 / 100 }, 0.02, 0.05, "%.1f s", true},
}

// measure makes the health of a job, without what came before.
func measure(s *Summary, limited bool, at time.Time) Health {
	h := Health{Site: s.Site, JobID: s.JobID, At: at, Records: s.Records, Fields: s.Coverage(), Limited: limited, Success: 1}
	all := s.Pages + s.Errors + s.Skipped
	if all > 0 {
		n := float64(all)
		h.Errors = float64(s.Errors) / n
		h.Success = 1 - h.Errors
		h.Blocks = float64(s.ByClass[fetch.Blocked]+s.ByClass[fetch.SoftBlock]) / n
	}
	h.Mean = float64(s.Times.mean()) / 1e6
	return h
}

// judgement collects what speaks against a job.
type judgement struct{ *Health }

// slow adds a reason that costs time and no data.
func (j judgement) slow(to HealthStatus, format string, args ...any) {
	j.Status.worsen(to)
	j.Alerts = append(j.Alerts, fmt.Sprintf(format, args...))
}

// loss adds a reason that costs data.
func (j judgement) loss(to HealthStatus, format string, args ...any) {
	j.Data.worsen(to)
	j.slow(to, format, args...)
}

func (j judgement) notice(format string, args ...any) {
	j.Notices = append(j.Notices, fmt.Sprintf(format, args...))
}

// judge compares a job with the thresholds and with the jobs before it.
func (h *Health) judge(def *definition.Definition, s *Summary, before []Health) {
	h.Status, h.Data, h.Alerts, h.Notices, h.Before = Healthy, Healthy, nil, nil, means(before)
	j := judgement{h}
	for _, t := range thresholds {
		v, to, add := t.of(*h), Degraded, j.loss
		if v > t.degraded {
			to = Critical
		}
		if t.slow {
			add = j.slow
		}
		if v > t.healthy {
			add(to, "%s: %s; up to %s is healthy", t.name, fmt.Sprintf(t.format, v*100), fmt.Sprintf(t.format, t.healthy*100))
		}
	}
	if s.Status != StatusComplete {
		j.loss(Degraded, "the job is %s", s.Status)
	}
	j.pages(before)
	was := len(h.Alerts) + len(h.Notices)
	j.records(def, s, before)
	j.faults(s)
	j.coverage()
	if len(h.Alerts)+len(h.Notices) > was {
		const look = "see what pages yield now with muster sites check --live %[1]s, and what saved pages do with muster sites test %[1]s"
		if h.Data == Healthy {
			j.notice(look, h.Site)
		} else {
			h.Alerts = append(h.Alerts, fmt.Sprintf(look, h.Site))
		}
	}
}

// means is the mean share of records that have each field.
func means(before []Health) map[string]float64 {
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

// records judges how many records there are, of all types and of each.
func (j judgement) records(def *definition.Definition, s *Summary, before []Health) {
	records, runs := 0, 0
	for _, b := range before {
		if !b.Limited {
			records += b.Records
			runs++
		}
	}
	mean := float64(records) / float64(max(runs, 1))
	switch {
	case j.Records == 0:
		j.loss(Critical, "no records (pages: %d fetched, %d skipped, %d errors)", s.Pages, s.Skipped, s.Errors)
		return
	case !j.Limited && mean >= 10 && float64(j.Records) < mean/2:
		j.loss(Critical, "%d records, where the last seven days had %.0f in the mean", j.Records, mean)
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
			j.loss(Degraded, "no %s records; every %s page should yield one", r.Name, r.From)
		case !j.Limited && had(j.Before, r.Name):
			j.loss(Degraded, "no %s records, where the last seven days had some", r.Name)
		}
	}
}

// had reports whether there were records of a type, by the shares of their fields.
func had(shares map[string]float64, typ string) bool {
	for field := range shares {
		if strings.HasPrefix(field, typ+".") {
			return true
		}
	}
	return false
}

// faults judges what was wrong with fields.
func (j judgement) faults(s *Summary) {
	for _, field := range slices.Sorted(maps.Keys(s.Faults)) {
		f, of := s.Faults[field], 0
		for _, n := range s.Fields[field] {
			of += n
		}
		of = max(of, f.Invalid+f.Unparsed)
		const invalid = "field %s: %d of %d records are invalid by it (%s)"
		switch share := float64(f.Invalid) / float64(of); {
		case share > degradedLoss:
			j.loss(Critical, invalid, field, f.Invalid, of, f.Example)
		case share > healthyLoss:
			j.loss(Degraded, invalid, field, f.Invalid, of, f.Example)
		case f.Invalid > 0:
			j.notice(invalid, field, f.Invalid, of, f.Example)
		}
		const unparsed = "field %s: in %d of %d records its text cannot be read and is left out (%s)"
		switch {
		case 2*f.Unparsed > of: // the definition takes it for something else than it is
			j.loss(Degraded, unparsed, field, f.Unparsed, of, f.Example)
		case f.Unparsed > 0:
			j.notice(unparsed, field, f.Unparsed, of, f.Example)
		}
	}
}

// coverage compares how often each field was found with the jobs before.
func (j judgement) coverage() {
	for _, field := range slices.Sorted(maps.Keys(j.Before)) {
		if share, ok := j.Fields[field]; ok && j.Before[field]-share > 0.2 {
			j.loss(Degraded, "field %s: found in %.0f %% of the records, before in %.0f %%", field, share*100, j.Before[field]*100)
		}
	}
}

// pages compares with the mean of the jobs before: a fifth worse is worth a look.
func (j judgement) pages(before []Health) {
	if len(before) == 0 {
		return
	}
	var success, response float64
	for _, b := range before {
		success += b.Success / float64(len(before))
		response += b.Mean / float64(len(before))
	}
	if j.Success < 0.8*success {
		j.loss(Degraded, "%.0f %% of the pages were had, where the last seven days had %.0f %% in the mean", j.Success*100, success*100)
	}
	// Times of a site that is quick vary by more than that.
	if response > 0 && j.Mean > 1.2*response && j.Mean-response > 500 {
		j.slow(Degraded, "mean response: %.1f s, where the last seven days had %.1f s in the mean", j.Mean/1000, response/1000)
	}
}

// assess adds the health of the site to a summary, and the job to those that
// the next is compared with.
func (j *job) assess(ctx context.Context, sum *Summary) error {
	before, err := runsOf(ctx, j.rdb, j.def.Site)
	if err != nil {
		return err
	}
	now := time.Now()
	before = slices.DeleteFunc(before, func(h Health) bool { return h.JobID == j.run })
	sum.Health = measure(sum, j.req.Limit > 0 || len(sum.Limits) > 0, now)
	sum.Health.judge(j.def, sum, before)
	data, err := json.Marshal(sum.Health)
	if err != nil {
		return fmt.Errorf("encode health: %w", err)
	}
	key := store.HealthKey(j.def.Site)
	_, err = j.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, j.run, data)
		p.Expire(ctx, key, baseline)
		slices.SortFunc(before, func(a, b Health) int { return b.At.Compare(a.At) })
		for i, h := range before {
			if i >= maxRuns || now.Sub(h.At) > baseline {
				p.HDel(ctx, key, h.JobID)
			}
		}
		p.SAdd(ctx, store.HealthSitesKey, j.def.Site)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store health of %s: %w", j.def.Site, err)
	}
	if sum.Health.Status != Healthy {
		j.log.Warn("the site is not healthy", "health", sum.Health.Status, "alerts", sum.Health.Alerts)
	}
	if len(sum.Health.Notices) > 0 {
		j.log.Warn("records of the site lack something", "notices", sum.Health.Notices)
	}
	return nil
}

func runsOf(ctx context.Context, rdb redis.UniversalClient, site string) ([]Health, error) {
	all, err := rdb.HGetAll(ctx, store.HealthKey(site)).Result()
	if err != nil {
		return nil, fmt.Errorf("read health of %s: %w", site, err)
	}
	runs := make([]Health, 0, len(all))
	for _, text := range all {
		var h Health
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			return nil, fmt.Errorf("read health of %s: %w", site, err)
		}
		runs = append(runs, h)
	}
	return runs, nil
}

// Health tells how each site did in its last job, by name. Sites without one
// in the last seven days are left out.
func (s *Service) Health(ctx context.Context) ([]Health, error) {
	rdb := s.cfg.Client.Redis()
	names, err := rdb.SMembers(ctx, store.HealthSitesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the health of sites: %w", err)
	}
	slices.Sort(names)
	out := []Health{}
	for _, name := range names {
		runs, err := runsOf(ctx, rdb, name)
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			out = append(out, slices.MaxFunc(runs, func(a, b Health) int { return a.At.Compare(b.At) }))
		}
	}
	return out, nil
}
