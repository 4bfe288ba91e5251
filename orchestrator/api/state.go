package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"muster/internal/limit"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/health"
	"muster/sites/polite"
)

// readyTime limits the checks of /ready that decide about its status.
const readyTime = 3 * time.Second

// Liveness reports that the process is running.
type Liveness struct {
	Status    string  `json:"status" example:"healthy"`
	Component string  `json:"component" example:"orchestrator"`
	Uptime    float64 `json:"uptime_seconds"`
}

// Readiness reports whether requests can be served.
type Readiness struct {
	Ready   bool            `json:"ready"`
	Redis   string          `json:"redis" enum:"ok,away"`
	Message string          `json:"message" doc:"for viewers: the cause and the remedy, if it is not ready"`
	Checks  []health.Result `json:"checks,omitempty" doc:"for viewers: Redis, the workers, the agents and the proxies; omitted while Redis is unavailable. A failed check of workers, agents or proxies does not make it not ready."`
}

// SystemStatus is how the system is.
type SystemStatus struct {
	Uptime float64               `json:"uptime_seconds"`
	Jobs   map[jobs.Status]int64 `json:"jobs" doc:"jobs by status"`
	Total  int64                 `json:"total"`
	Stuck  int                   `json:"stuck" doc:"jobs without progress"`
}

type nothing struct{}

type readinessOutput struct {
	Status int
	Body   Readiness
}

func addState(s *server) {
	op := describe(s, http.MethodGet, "/health", "getHealth", tagState, "Report that the process responds")
	op.Description = "The status is always 200. It needs no key."
	op.Security = []map[string][]string{}
	example(&op, http.StatusOK, Liveness{Status: "healthy", Component: "orchestrator", Uptime: 12.5})
	route(s, op, 0, body(func(context.Context, *nothing) (Liveness, error) {
		return Liveness{Status: "healthy", Component: s.cfg.Component, Uptime: s.uptime()}, nil
	}))

	op = describe(s, http.MethodGet, "/ready", "getReady", tagState, "Report whether requests can be served")
	op.Description = "The status is 200 or 503. It needs no key; a viewer gets the results of the checks too."
	op.Metadata[optionalKey] = true
	example(&op, http.StatusOK, Readiness{Ready: true, Redis: "ok"})
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*readinessOutput, error) {
		details := access.CallerOf(ctx).Role.May(access.Viewer)
		out := &readinessOutput{Status: http.StatusOK, Body: s.cfg.readiness(ctx, details)}
		if !out.Body.Ready {
			out.Status = http.StatusServiceUnavailable
		}
		if !details {
			out.Body.Message = ""
		}
		return out, nil
	})
	notReady := s.api.OpenAPI().Components.Schemas.Schema(typeOf[Readiness](), true, "Readiness")
	ready := s.api.OpenAPI().Paths["/ready"].Get.Responses["503"]
	ready.Description, ready.Content["application/json"] = "It is not ready.", &huma.MediaType{Schema: notReady}

	if s.cfg.Check != nil {
		implement(s, client.GetHealthReport, func(ctx context.Context, _ *client.None) (health.Report, error) { return s.cfg.Check(ctx), nil })
	}
	if s.cfg.Metrics != nil {
		served := describe(s, http.MethodGet, "/metrics", "getMetrics", tagState, "Metrics for Prometheus")
		answersWith(&served, "The metrics, as text", "text/plain")
		s.api.OpenAPI().AddOperation(&served) // it keeps the pointer
	}
	if s.cfg.Jobs != nil {
		addStatus(s)
	}
}

// addStatus adds the summary of all jobs.
func addStatus(s *server) {
	op := describe(s, http.MethodGet, "/status", "getStatus", tagState, "Get the number of jobs by status, and of stuck jobs")
	example(&op, http.StatusOK, SystemStatus{Uptime: 12.5, Jobs: map[jobs.Status]int64{jobs.Processing: 2, jobs.Completed: 40}, Total: 42})
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (out SystemStatus, err error) {
		totals, err := s.cfg.Jobs.Totals(ctx)
		if err != nil {
			return out, err
		}
		stuck, err := s.cfg.Jobs.Stuck(ctx)
		if err != nil {
			return out, err
		}
		body := SystemStatus{Uptime: s.uptime(), Jobs: map[jobs.Status]int64{}, Stuck: len(stuck)}
		for _, status := range jobs.Statuses {
			body.Jobs[status] = totals[status]
			body.Total += totals[status]
		}
		return body, nil
	}))
}

func (s *server) uptime() float64 { return time.Since(s.started).Seconds() }

// readiness checks Redis, and only if that replies, the directory of documents and, with details, all parts of the system.
func (c Config) readiness(ctx context.Context, details bool) Readiness {
	limited, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := c.Client.Writable(limited); err != nil {
		return Readiness{Redis: "away", Message: err.Error()}
	}
	r := Readiness{Ready: true, Redis: "ok"}
	if c.Check != nil && details {
		r.Checks = c.Check(ctx).Checks
	}
	if c.Documents != nil {
		if err := c.Documents.Check(ctx); err != nil {
			r.Ready, r.Message = false, err.Error()
		}
	}
	return r
}

// metricsTime bounds all questions of one scrape.
const metricsTime = 5 * time.Second

// Metrics collects the metrics of jobs. It is safe for concurrent use.
type Metrics struct {
	cfg     Config
	started time.Time

	uptime, jobs, ready, items, stuck *prometheus.Desc
}

// NewMetrics returns the collector for the services of cfg. Uptime is counted from now.
func NewMetrics(cfg Config) *Metrics {
	desc := prometheus.NewDesc
	return &Metrics{
		cfg: cfg.withDefaults(), started: time.Now(),
		uptime: desc("orchestrator_uptime_seconds", "Time since the HTTP interface started.", nil, nil),
		jobs:   desc("orchestrator_jobs_total", "Jobs.", []string{"status"}, nil),
		ready:  desc("orchestrator_ready", "1 if requests can be served; see /ready.", nil, nil),
		items:  desc("muster_jobs_items", "Items of jobs. Items of unfinished jobs are counted every jobs.check_every.", []string{"state"}, nil),
		stuck:  desc("muster_jobs_stuck", "Jobs without progress, counted every jobs.check_every.", nil, nil),
	}
}

// Describe lists the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.uptime, m.jobs, m.ready, m.items, m.stuck} {
		ch <- d
	}
}

// Collect reads the metrics and omits those that cannot be read.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTime)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(m.uptime, time.Since(m.started).Seconds())
	ready := 0.0
	if m.cfg.readiness(ctx, false).Ready {
		ready = 1
	}
	gauge(m.ready, ready)
	if m.cfg.Jobs != nil {
		m.collectJobs(ctx, ch, gauge)
	}
}

func (m *Metrics) collectJobs(ctx context.Context, ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string)) {
	if totals, err := m.cfg.Jobs.Totals(ctx); err == nil {
		for _, status := range jobs.Statuses {
			gauge(m.jobs, float64(totals[status]), string(status))
		}
	}
	n, err := m.cfg.Jobs.Numbers(ctx)
	if err != nil {
		return
	}
	gauge(m.stuck, float64(n.Stuck))
	for _, state := range jobs.ItemStatuses {
		gauge(m.items, float64(n.Items[state]), string(state))
	}
}

// Breakers are the circuit breakers of a fleet. The key of a breaker is site@host for a site, host:NAME for a host of the work
// queue and agent:ID for a push agent.
type Breakers struct {
	Hosts  *limit.Breaker // also of sites
	Agents *limit.Breaker
}

var errNoBreaker = errors.New("no open breaker with this name")

// addBreakers adds the operations on circuit breakers.
func addBreakers(s *server) {
	breakers := s.cfg.Breakers
	list := func(ctx context.Context) ([]limit.BreakerState, error) {
		list, err := breakers.Hosts.States(ctx)
		if err != nil {
			return nil, err
		}
		agents, err := breakers.Agents.States(ctx)
		return append(list, agents...), err
	}
	implement(s, client.ListBreakers, func(ctx context.Context, _ *client.None) (client.Page[limit.BreakerState], error) {
		return pageOf(list(ctx))
	})
	implement(s, client.ResetBreakers, func(ctx context.Context, in *client.With[client.BreakerReset]) (out client.Page[string], err error) {
		if in.Body.All == (len(in.Body.Names) > 0) {
			return out, badField("body.names", "give names, or all: true")
		}
		open, err := list(ctx)
		if err != nil {
			return out, err
		}
		var keys []string
		if in.Body.All {
			for _, b := range open {
				keys = append(keys, b.Key)
			}
		}
		for _, name := range in.Body.Names {
			found := keysOf(open, name)
			if len(found) == 0 {
				return out, fmt.Errorf("breaker %.200s: %w", name, errNoBreaker)
			}
			keys = append(keys, found...)
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		var errs []error
		for _, key := range keys {
			breaker := breakers.Hosts
			if agent.IsBreaker(key) {
				breaker = breakers.Agents
			} else if err := polite.Forget(ctx, s.cfg.Client.Redis(), key); err != nil {
				errs = append(errs, fmt.Errorf("reset the breaker of %s: %w", key, err))
				continue
			}
			errs = append(errs, breaker.Reset(ctx, key))
		}
		return pageOf(keys, errors.Join(errs...))
	})
}

// keysOf returns the keys of the breakers that a name matches: a key, or the site, host or ID in it.
func keysOf(list []limit.BreakerState, name string) []string {
	var keys []string
	for _, b := range list {
		site, host, isSite := strings.Cut(b.Key, "@")
		_, plain, _ := strings.Cut(b.Key, ":")
		if b.Key == name || isSite && (site == name || host == name) || !isSite && plain == name {
			keys = append(keys, b.Key)
		}
	}
	return keys
}
