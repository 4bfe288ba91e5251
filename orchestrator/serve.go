package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/atomicfile"
	"muster/internal/trust"
	"muster/orchestrator/access"
	"muster/orchestrator/api"
	"muster/orchestrator/api/client"
	"muster/orchestrator/config"
	"muster/orchestrator/health"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/metrics"
)

// Serve puts the schedules of the settings, processes the queues of the setting queue.run and serves the HTTP API if it is enabled, until
// ctx is done.
func (o *Orchestrator) Serve(ctx context.Context) error {
	if err := o.Workers.Start(ctx); err != nil {
		return err
	}
	if err := o.syncSchedules(ctx); err != nil {
		return err
	}
	pools, err := o.queuePools()
	if err != nil {
		return err
	}
	intake, running := errgroup.WithContext(ctx)
	if o.cfg().API.Enabled {
		intake.Go(func() error {
			err := o.serveAPI(running, true, o.opts.Ready)
			if errors.Is(err, api.ErrTaken) && !o.opts.NeedAPI {
				o.opts.Logger.WarnContext(ctx, "the HTTP API is not available; set api.listen to another address or api.enabled to false", "err", err)
				return nil
			}
			return err
		})
	}
	for _, pool := range pools {
		intake.Go(func() error { return pool.Run(running) })
	}
	intake.Go(func() error { o.Proxies.Keep(running); return nil })
	intake.Go(func() error { o.logEvents(running); return nil })
	o.runServices(running, intake)
	o.opts.Logger.InfoContext(ctx, "running; Ctrl-C stops", "redis", o.redis.Mode(), "data", o.cfg().DataDir)
	if err := intake.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

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
	s.runServices(running, serving)
	serving.Go(func() error { return s.serveAPI(running, false, ready) })
	err = serving.Wait()
	stopWatch()
	return errors.Join(err, s.Close())
}

// runServices advances jobs, assigns work to agents, delivers webhooks and archives workflows, in a group until ctx is done.
func (s *System) runServices(ctx context.Context, group *errgroup.Group) {
	for _, run := range []func(context.Context) error{s.Jobs.Run, s.Agents.Run, s.Webhooks.Run, s.Archive.Run} {
		group.Go(func() error { return run(ctx) })
	}
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
	checks = append(checks, health.Orchestrator(running), health.Workers(s.Client.Inspect().Workers, cfg.Workers.PingTimeout), health.Agents(s.Agents.List),
		health.Scrapes(func(ctx context.Context) ([]sites.Stalled, error) { return sites.StalledJobs(ctx, s.Client) }))
	if s.Archive.Set() {
		checks = append(checks, health.Archive(s.Archive.Health))
	}
	if cfg.Proxies.HasSources() {
		checks = append(checks, health.Proxies(s.Pool.Usable, func() int { return s.Config().Proxies.MinUsable }))
	}
	return health.Run(ctx, checks)
}

// Guarded returns the access configuration of a listener: API keys, allowed hosts and rate limits. Hosts and static keys
// follow a reload of the settings.
func Guarded(s *System) (api.Config, error) {
	cfg, client, logger := s.cfg().API, s.Client, s.logger
	var tokens *access.Tokens
	if j := cfg.JWT; j.Enabled() {
		var err error
		if tokens, err = access.NewTokens(j, logger); err != nil {
			return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
		}
	}
	gate, err := access.NewGate(cfg.Keys, s.Keys, tokens)
	if err != nil {
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	s.gates.add(gate)
	if err := gate.SetStatic(s.cfg().API.Keys); err != nil { // a reload may have run before the gate was added
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	return api.Config{
		Client: client, Listen: cfg.Listen, Hosts: func() []string { return s.cfg().API.Hosts }, Write: !cfg.ReadOnly, Logger: logger,
		Gate: gate, Rate: cfg.Rate, Burst: cfg.Burst, Origins: cfg.CORS,
		Keys: s.Keys, Audit: s.Audit,
	}, nil
}

// gates holds the gates of the listeners of a process. It may be used concurrently.
type gates struct {
	mu  sync.Mutex // guards all
	all []*access.Gate
}

func (g *gates) add(one *access.Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, one)
}

// setKeys sets the static keys of all gates. The keys have been validated by a gate before.
func (g *gates) setKeys(keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		_ = one.SetStatic(keys) // fails for all gates or for none
	}
}

// localAPI is the content of the file in the data directory that lets commands on the same machine call the API of a
// running orchestrator.
type localAPI struct {
	URL   string `json:"url"`
	Key   string `json:"key"`
	Redis string `json:"redis"` // SHA-256 of redis.url of the orchestrator, in hex
}

func localAPIFile(cfg config.Config) string { return filepath.Join(cfg.DataDir, "api.json") }

func redisSum(cfg config.Config) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(cfg.Redis.URL)))
}

// publishAPI writes the file for commands of this user and returns a function that removes it.
func publishAPI(cfg config.Config, url, key string) (remove func(), err error) {
	file, at := localAPIFile(cfg), localAPI{url, key, redisSum(cfg)}
	err = atomicfile.Write(file, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(at) })
	if err != nil {
		return nil, fmt.Errorf("write the address of the API for commands: %w", err)
	}
	return func() {
		if now, err := readLocalAPI(cfg); err == nil && now == at { // else another orchestrator has replaced it
			_ = os.Remove(file)
		}
	}, nil
}

func readLocalAPI(cfg config.Config) (localAPI, error) {
	f, err := trust.Open(localAPIFile(cfg))
	if err != nil {
		return localAPI{}, err
	}
	defer f.Close()
	var at localAPI
	err = json.NewDecoder(io.LimitReader(f, 1<<16)).Decode(&at)
	return at, err
}

// localTime is the response timeout for a running orchestrator.
const localTime = 2 * time.Second

// LocalAPI returns a client of the orchestrator that runs on this machine with the data directory and the Redis of cfg,
// or nil if none responds.
func LocalAPI(ctx context.Context, cfg config.Config) (*client.Client, error) {
	at, err := readLocalAPI(cfg)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the address of the running orchestrator: %w; run this as the owner of the data directory, or choose another with --data-dir", err)
	}
	if cfg.Redis.URL != "" && at.Redis != redisSum(cfg) {
		return nil, nil
	}
	c, err := client.New(client.Config{URL: at.URL, Key: at.Key})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", localAPIFile(cfg), err)
	}
	ctx, cancel := context.WithTimeout(ctx, localTime)
	defer cancel()
	if _, err := client.GetCaller.Call(ctx, c, client.None{}); err != nil { // it was killed, and its port may belong to another program
		return nil, nil
	}
	return c, nil
}

// APIClient returns a client that calls the API in this process with the rights of the command line.
func (o *Orchestrator) APIClient() (*client.Client, error) {
	served, err := o.apiConfig()
	if err != nil {
		return nil, err
	}
	key := access.NewLocalKey()
	served.Gate.SetLocal(key)
	handler, err := api.Handler(served)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{URL: "http://localhost", Key: key, Transport: client.Handler(handler)})
}
