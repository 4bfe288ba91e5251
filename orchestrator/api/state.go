package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"muster/jobs"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/orchestrator/health"
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
