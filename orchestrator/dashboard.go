package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/jobs/agent"
	"muster/orchestrator/access"
	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/health"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/metrics"
)

// ServeDashboard serves the HTTP API, the pages and the metrics for workers in other processes, until ctx is done. It
// also advances jobs, assigns work to agents and delivers webhooks. Watch, if not nil, supplies new settings; ready,
// if not nil, is called with the address of the pages.
func ServeDashboard(ctx context.Context, cfg config.Config, client *tasks.Client, logger *slog.Logger, watch Watch, ready func(url string)) error {
	s, err := NewSystem(cfg, client, logger)
	if err != nil {
		return err
	}
	stopWatch := watchSystem(ctx, s, watch, func(config.Config) {})
	serving, running := errgroup.WithContext(ctx)
	serving.Go(func() error { return s.Jobs.Run(running) })
	serving.Go(func() error { return s.Agents.Run(running) })
	serving.Go(func() error { return s.Webhooks.Run(running) })
	serving.Go(func() error { return s.Archive.Run(running) })
	serving.Go(func() error { return s.serveAPI(running, false, ready) })
	err = serving.Wait()
	stopWatch()
	return errors.Join(err, s.Close())
}

// serveAPI serves the HTTP API, the pages and the metrics until ctx is done. With publish, it writes the address to the data
// directory for commands on this machine.
func (s *System) serveAPI(ctx context.Context, publish bool, ready func(url string)) error {
	served, err := s.apiConfig()
	if err != nil {
		return err
	}
	if publish {
		key := access.NewLocalKey()
		served.Gate.SetLocal(key)
		var remove func()
		defer func() {
			if remove != nil {
				remove()
			}
		}()
		served.Ready = func(url string) {
			var err error
			if remove, err = publishAPI(s.Config(), strings.TrimSuffix(url, "/ui/"), key); err != nil {
				s.logger.WarnContext(ctx, "commands with this data directory cannot call the running orchestrator", "err", err)
			}
			if ready != nil {
				ready(url)
			}
		}
	} else {
		served.Ready = ready
	}
	return api.Serve(ctx, served)
}

// apiConfig returns the configuration of the HTTP API.
func (s *System) apiConfig() (api.Config, error) {
	served, err := Guarded(s)
	if err != nil {
		return served, err
	}
	served.Jobs, served.Agents, served.Pipelines, served.Documents, served.Events = s.Jobs, s.Agents, s.Pipelines, s.Documents, s.Events
	served.Archive = s.Archive
	served.Webhooks, served.Proxies, served.Breakers = s.Webhooks, s.proxies, s.Breakers
	served.Queue = s.ArtifactQueue
	served.Lease = s.cfg().Jobs.Lease
	served.Sites, served.Check, served.Tracing = s.Sites, s.health, s.tracing
	served.Timing = api.NewTiming()
	served.Metrics = metrics.Handler(s.metrics(served))
	return served, nil
}

// agentHeartbeat returns the expected heartbeat interval of agents: the interval of their registration, and at least 15 s.
func agentHeartbeat(cfg config.Jobs) time.Duration { return max(cfg.Lease/3, 15*time.Second) }

// health checks the system: Redis, its memory, the orchestrator, workers, agents, scrapes without progress and, if sources
// are configured, proxies.
func (s *System) health(ctx context.Context) health.Report {
	cfg := s.Config()
	checks := []health.Check{health.Redis(s.Client.Writable, cfg.Redis.PingTimeout), health.Memory(health.MemoryInfo(s.Client))}
	running := s.Jobs.IsRunning
	if s.alone { // the record of a killed process expires later
		running = func(context.Context) (bool, error) { return false, nil }
	}
	checks = append(checks, health.Orchestrator(running), health.Workers(s.Client.Inspect().Workers, cfg.Workers.PingTimeout), health.Agents(func(ctx context.Context) ([]health.AgentState, error) {
		agents, err := s.Agents.List(ctx)
		list := make([]health.AgentState, len(agents))
		for i, a := range agents {
			list[i] = health.AgentState{Name: a.Name, State: a.State, Why: a.Health}
		}
		return list, err
	}, agent.StateUnavailable), health.Scrapes(func(ctx context.Context) ([]string, error) {
		stalled, err := sites.StalledJobs(ctx, s.Client)
		list := make([]string, len(stalled))
		for i, j := range stalled {
			list[i] = j.String()
		}
		return list, err
	}))
	if s.Archive.Set() {
		checks = append(checks, health.Archive(s.Archive.Health))
	}
	if cfg.Proxies.HasSources() {
		checks = append(checks, health.Proxies(s.Pool.Usable, func() int { return s.Config().Proxies.MinUsable }))
	}
	return health.Run(ctx, checks)
}
