package sites

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/sites/fetch"
)

// HealthStatus is how a site does.
type HealthStatus string

// The health of a site, from best to worst.
const (
	Healthy  HealthStatus = "healthy"
	Degraded HealthStatus = "degraded"
	Critical HealthStatus = "critical"
)

// Health is how a site did in its last job, also against those of the seven
// days before.
type Health struct {
	Site    string             `json:"site"`
	JobID   string             `json:"job_id"`
	At      time.Time          `json:"at"`
	Status  HealthStatus       `json:"status"`
	Success float64            `json:"success"`     // share of pages that were had; one that is gone, or unchanged, counts
	Errors  float64            `json:"errors"`      // share of pages that were not
	Blocks  float64            `json:"blocks"`      // share of pages that were refusals
	Mean    float64            `json:"response_ms"` // mean
	Records int                `json:"records"`
	Fields  map[string]float64 `json:"fields,omitempty"` // share of records that have each field
	Before  map[string]float64 `json:"before,omitempty"` // the same, in the mean of the jobs before
	Alerts  []string           `json:"alerts,omitempty"`
	Limited bool               `json:"limited,omitempty"` // the job had a limit: its number of records tells nothing
}

const (
	baseline = 7 * 24 * time.Hour
	maxRuns  = 200 // of a site, that a baseline is made of
)

// thresholds are up to where a site is healthy, and up to where degraded.
var thresholds = []struct {
	name              string
	of                func(Health) float64
	healthy, degraded float64
	format            string
}{
	{"pages that were not had", func(h Health) float64 { return 1 - h.Success }, 0.10, 0.25, "%.0f %%"},
	{"errors", func(h Health) float64 { return h.Errors }, 0.05, 0.15, "%.0f %%"},
	{"refusals", func(h Health) float64 { return h.Blocks }, 0.02, 0.05, "%.0f %%"},
	{"mean response", func(h Health) float64 { return h.Mean / 1000 / 100 }, 0.02, 0.05, "%.1f s"},
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

// judge compares a job with the thresholds and with the jobs before it.
func (h *Health) judge(status string, before []Health) {
	h.Status, h.Alerts, h.Before = Healthy, nil, nil
	worse := func(to HealthStatus, format string, args ...any) {
		if to == Critical || h.Status == Healthy {
			h.Status = to
		}
		h.Alerts = append(h.Alerts, fmt.Sprintf(format, args...))
	}
	for _, t := range thresholds {
		v, to := t.of(*h), Degraded
		if v > t.degraded {
			to = Critical
		}
		if v > t.healthy {
			worse(to, "%s: %s; up to %s is healthy", t.name, fmt.Sprintf(t.format, v*100), fmt.Sprintf(t.format, t.healthy*100))
		}
	}
	if status != StatusComplete {
		worse(Degraded, "the job is %s", status)
	}
	records, runs := 0, 0
	sums, counts := map[string]float64{}, map[string]int{}
	for _, b := range before {
		if !b.Limited {
			records += b.Records
			runs++
		}
		for field, share := range b.Fields {
			sums[field] += share
			counts[field]++
		}
	}
	if runs > 0 && !h.Limited {
		if mean := float64(records) / float64(runs); mean >= 10 && float64(h.Records) < mean/2 {
			worse(Critical, "%d records, where the last seven days had %.0f in the mean", h.Records, mean)
		}
	}
	h.judgeAgainst(before, worse)
	for _, field := range slices.Sorted(maps.Keys(sums)) {
		mean := sums[field] / float64(counts[field])
		if h.Before == nil {
			h.Before = map[string]float64{}
		}
		h.Before[field] = mean
		if share, ok := h.Fields[field]; ok && mean-share > 0.2 {
			worse(Degraded, "field %s: found in %.0f %% of the records, before in %.0f %%", field, share*100, mean*100)
		}
	}
}

// judgeAgainst compares with the mean of the jobs before: a fifth worse is worth a look.
func (h *Health) judgeAgainst(before []Health, worse func(HealthStatus, string, ...any)) {
	if len(before) == 0 {
		return
	}
	var success, response float64
	for _, b := range before {
		success += b.Success / float64(len(before))
		response += b.Mean / float64(len(before))
	}
	if h.Success < 0.8*success {
		worse(Degraded, "%.0f %% of the pages were had, where the last seven days had %.0f %% in the mean", h.Success*100, success*100)
	}
	// Times of a site that is quick vary by more than that.
	if response > 0 && h.Mean > 1.2*response && h.Mean-response > 500 {
		worse(Degraded, "mean response: %.1f s, where the last seven days had %.1f s in the mean", h.Mean/1000, response/1000)
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
	sum.Health.judge(sum.Status, before)
	data, err := json.Marshal(sum.Health)
	if err != nil {
		return fmt.Errorf("encode health: %w", err)
	}
	key := healthKey(j.def.Site)
	_, err = j.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, j.run, data)
		p.Expire(ctx, key, baseline)
		slices.SortFunc(before, func(a, b Health) int { return b.At.Compare(a.At) })
		for i, h := range before {
			if i >= maxRuns || now.Sub(h.At) > baseline {
				p.HDel(ctx, key, h.JobID)
			}
		}
		p.SAdd(ctx, healthSites, j.def.Site)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store health of %s: %w", j.def.Site, err)
	}
	if sum.Health.Status != Healthy {
		j.log.Warn("the site is not healthy", "health", sum.Health.Status, "alerts", sum.Health.Alerts)
	}
	return nil
}

func runsOf(ctx context.Context, rdb redis.UniversalClient, site string) ([]Health, error) {
	all, err := rdb.HGetAll(ctx, healthKey(site)).Result()
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
	names, err := rdb.SMembers(ctx, healthSites).Result()
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
