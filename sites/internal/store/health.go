package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
	"muster/sites/report"
)

// maxHealth limits the jobs of a site with stored health.
const maxHealth = 200

// HealthOf returns the health of a site in its last jobs, newest first.
func HealthOf(ctx context.Context, rdb redis.UniversalClient, site string) ([]report.Health, error) {
	all, err := rdb.HGetAll(ctx, HealthKey(site)).Result()
	if err != nil {
		return nil, fmt.Errorf("read health of %s: %w", site, err)
	}
	jobs := make([]report.Health, 0, len(all))
	for job, text := range all {
		var h report.Health
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			return nil, fmt.Errorf("read health of %s: decode %s of key %s: %w", site, job, HealthKey(site), err)
		}
		jobs = append(jobs, h)
	}
	slices.SortFunc(jobs, func(a, b report.Health) int { return b.At.Compare(a.At) })
	return jobs, nil
}

// StatusBefore returns the health of a site in its newest job other than but, or "".
func StatusBefore(jobs []report.Health, but string) report.HealthStatus {
	for _, h := range jobs {
		if h.JobID != but {
			return h.Status
		}
	}
	return ""
}

// SaveHealth stores the health of a site after a job, and removes entries of jobs that are too old or too many. before has the
// earlier jobs, newest first.
func SaveHealth(ctx context.Context, rdb redis.UniversalClient, h report.Health, before []report.Health) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode health: %w", err)
	}
	key := HealthKey(h.Site)
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, key, h.JobID, data)
		p.Expire(ctx, key, report.Baseline)
		for i, old := range before {
			if i >= maxHealth || time.Since(old.At) > report.Baseline {
				p.HDel(ctx, key, old.JobID)
			}
		}
		p.SAdd(ctx, HealthSitesKey, h.Site)
		return nil
	})
	return wrap.Err(err, "store health of %s", h.Site)
}

// LastHealth returns the health of each site in its last job, by name. It omits sites without a job in the last seven days.
func LastHealth(ctx context.Context, rdb redis.UniversalClient) ([]report.Health, error) {
	names, err := rdb.SMembers(ctx, HealthSitesKey).Result()
	if err != nil {
		return nil, fmt.Errorf("list the health of sites: %w", err)
	}
	slices.Sort(names)
	last := []report.Health{}
	for _, name := range names {
		jobs, err := HealthOf(ctx, rdb, name)
		if err != nil {
			return nil, err
		}
		if len(jobs) > 0 {
			last = append(last, jobs[0])
		}
	}
	return last, nil
}
