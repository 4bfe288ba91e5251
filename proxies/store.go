package proxies

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/wrap"
)

//go:embed lua/publish.lua
var publishLua string

//go:embed lua/report.lua
var reportLua string

var (
	publishCmd = redis.NewScript(publishLua)
	reportCmd  = redis.NewScript(reportLua)
)

// store accesses a pool in Redis. It is stateless.
type store struct {
	rdb    redis.UniversalClient
	name   string
	random func() float64 // from 0 to 1, for cooldowns
}

// keys returns the keys that the scripts share, in their order.
func (s *store) keys() []string { return []string{recordsKey(s.name), healthKey(s.name, "")} }

// publish adds proxies to the pool or replaces their records. It returns the number of new proxies.
func (s *store) publish(ctx context.Context, proxies []Proxy) (added int, err error) {
	for chunk := range slices.Chunk(proxies, 200) {
		args := []any{time.Now().UnixMilli()}
		for _, proxy := range chunk {
			record, err := json.Marshal(proxy)
			if err != nil {
				return added, fmt.Errorf("encode proxy %s: %w", proxy, err)
			}
			args = append(args, proxy.ID, record, proxy.LatencyMS)
		}
		n, err := publishCmd.Run(ctx, s.rdb, s.keys(), args...).Int()
		if err != nil {
			return added, fmt.Errorf("publish proxies: %w", err)
		}
		added += n
	}
	return added, nil
}

// maxFails is the number of consecutive failures after which a proxy is removed. A timeout counts half.
const maxFails = 3

// report records outcomes of requests in a scope. It returns the IDs of proxies that were removed from the pool.
func (s *store) report(ctx context.Context, scope string, reports []report) (dead []string, err error) {
	if scope == "" { // requests without a site have their own scope
		scope = "*none*"
	}
	keys := append(s.keys(), healthKey(s.name, scope))
	for chunk := range slices.Chunk(reports, 150) {
		args := []any{time.Now().UnixMilli(), maxFails}
		for _, r := range chunk {
			cooldown := int64(-1)
			if r.cooldown >= 0 {
				cooldown = r.cooldown.Milliseconds()
			}
			args = append(args, r.id, string(r.outcome), r.begun.UnixMilli(), float64(r.latency.Microseconds())/1000, cooldown, s.random())
		}
		ids, err := reportCmd.Run(ctx, s.rdb, keys, args...).StringSlice()
		if err != nil {
			return dead, fmt.Errorf("write proxy reports: %w", err)
		}
		dead = append(dead, ids...)
	}
	return dead, nil
}

// members returns the records of the pool and the healths over all sites, by proxy ID.
func (s *store) members(ctx context.Context) (records, healths map[string]string, err error) {
	var all, health *redis.MapStringStringCmd
	if _, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		all, health = pipe.HGetAll(ctx, recordsKey(s.name)), pipe.HGetAll(ctx, healthKey(s.name, ""))
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("read the pool: %w", err)
	}
	return all.Val(), health.Val(), nil
}

// health returns the healths in a scope by proxy ID, without damaged ones.
func (s *store) health(ctx context.Context, scope string) (map[string]Health, error) {
	texts, err := s.rdb.HGetAll(ctx, healthKey(s.name, scope)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the health of proxies at %s: %w", scope, err)
	}
	healths := make(map[string]Health, len(texts))
	for id, text := range texts {
		if h, err := parseHealth(text); err == nil {
			healths[id] = h
		}
	}
	return healths, nil
}

// startTrial acquires the trial of a proxy after its cooldown, for one process at a time, until endTrial.
func (s *store) startTrial(ctx context.Context, scope, id string) bool {
	ok, err := s.rdb.SetNX(ctx, trialKey(s.name, scope, id), "1", 30*time.Second).Result()
	return ok || err != nil
}

func (s *store) endTrial(scope, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.rdb.Del(ctx, trialKey(s.name, scope, id)).Err() // on failure it expires
}

// Status is the status of a pool.
type Status struct {
	RefreshedAt time.Time `json:"refreshed_at,omitzero"` // time of the last refresh that found proxies
	Stale       bool      `json:"stale"`                 // the last refresh found none and the old pool was kept
	Candidates  int       `json:"candidates"`            // of the last refresh
	Alive       int       `json:"alive"`
	Usable      int       `json:"usable"`
}

// Status returns the status of the pool.
func (p *Pool) Status(ctx context.Context) (Status, error) {
	values, err := p.rdb.HGetAll(ctx, statusKey(p.name)).Result()
	if err != nil {
		return Status{}, fmt.Errorf("read pool status: %w", err)
	}
	number := func(name string) int { n, _ := strconv.Atoi(values[name]); return n }
	status := Status{Stale: values["stale"] == "1", Candidates: number("candidates"), Alive: number("alive"), Usable: number("usable")}
	if at := number("refreshed_at"); at > 0 {
		status.RefreshedAt = time.Unix(int64(at), 0)
	}
	return status, nil
}

// setStatus records a refresh. A stale one does not change RefreshedAt.
func (s *store) setStatus(ctx context.Context, status Status) error {
	fields := map[string]any{"candidates": status.Candidates, "alive": status.Alive, "usable": status.Usable, "stale": "1"}
	if !status.Stale {
		fields["stale"], fields["refreshed_at"] = "0", status.RefreshedAt.Unix()
	}
	return wrap.Err(s.rdb.HSet(ctx, statusKey(s.name), fields).Err(), "record refresh")
}

// reportExpiry is the lifetime of refresh reports in Redis.
const reportExpiry = 24 * time.Hour

func (s *store) setRefreshReport(ctx context.Context, job string, report []byte) error {
	return wrap.Err(s.rdb.Set(ctx, reportKey(s.name, job), report, reportExpiry).Err(), "store refresh report")
}

// Report returns the report of a refresh. ok is false if Redis does not have it; reports expire after a day.
func (p *Pool) Report(ctx context.Context, job string) (report Report, ok bool, err error) {
	data, err := p.rdb.Get(ctx, reportKey(p.name, job)).Bytes()
	if errors.Is(err, redis.Nil) {
		return Report{}, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	return report, err == nil, wrap.Err(err, "read the report of refresh %s", job)
}
