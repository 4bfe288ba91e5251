package orchestrator

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/clip"
	"muster/internal/limit"
	"muster/internal/logctx"
	"muster/internal/tracing"
	"muster/internal/tracing/observed"
	"muster/internal/tracing/otlp"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/api"
	"muster/orchestrator/archive"
	"muster/orchestrator/config"
	"muster/orchestrator/event"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/proxies/gateway"
	"muster/proxies/geo"
	"muster/proxies/probe"
	"muster/proxies/source"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/fetch"
	"muster/sites/polite"
	"muster/sites/render"
	"muster/tasks"
	"muster/tasks/metrics"
	"muster/tasks/otel"
	"muster/tasks/tasktype"
)

// System contains the services that send jobs and run their tasks, connected to one Redis. The orchestrator and each worker
// process have one. Close releases it.
type System struct {
	Client *tasks.Client
	Pool   *proxies.Pool
	Sites  *sites.Service
	// Jobs lists jobs of all kinds and runs pipelines.
	Jobs *jobs.Service
	// Agents assigns work of pipelines to agents while Agents.Run runs.
	Agents *agent.Service
	// Archive archives workflows while Archive.Run runs.
	Archive *archive.Archive
	// Webhooks delivers events while Webhooks.Run runs.
	Webhooks  *webhook.Service
	Pipelines *pipeline.Registry
	Documents *document.Store
	Events    *event.Stream
	Breakers  *api.Breakers
	// Keys and Audit store the API keys and the audit log.
	Keys  *access.Keys
	Audit *access.Audit
	// Metrics are the metrics of the workers of this process.
	Metrics *metrics.Process
	queues  all // metrics of the work queues that this process runs

	liveSettings
	tracing *tracing.Tracing // nil if disabled
	scrapes *scrapeMetrics
	times   *jobMetrics
	gates   gates
	logger  *slog.Logger
	proxies *proxies.Service
	browser *render.Browser
	through browserProxies                    // of browser
	judge   atomic.Pointer[probe.JudgeServer] // nil before the first check, and if proxies.judges is set
	alone   bool                              // no other process uses the Redis, and this one does not run Serve
	direct  sync.Once                         // guards the warning about direct scrapes
}

// NewSystem returns a system that uses client and does not close it. If proxies.judges is empty, the
// first check of proxies starts a judge on loopback.
func NewSystem(cfg config.Config, client *tasks.Client, logger *slog.Logger) (_ *System, err error) {
	s := &System{
		Client: client, Events: event.New(client.Redis()), Metrics: metrics.NewProcess(), logger: logger, times: newJobMetrics(),
		Keys: access.NewKeys(client.Redis()), Audit: access.NewAudit(client.Redis()),
	}
	s.settings.Store(&cfg)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.tracing, err = otlp.Open(cfg.Tracing, logger); err != nil {
		return nil, err
	}
	s.Pool = proxies.NewPool(proxies.PoolConfig{Redis: client.Redis(), MaxInFlight: cfg.Proxies.MaxInFlight, Filter: cfg.ProxyFilter(), Logger: logger})
	places, err := geo.Open(cfg.Proxies.MMDB...)
	if err != nil {
		return nil, fmt.Errorf("proxies.mmdb: %w", err)
	}
	s.proxies, err = proxies.NewService(proxies.Config{
		Pool: s.Pool, Client: client, Settings: s.proxySettings,
		Probe: ProbeConfig(cfg, logger), Judges: s.startJudge, Fetcher: &source.Fetcher{MaxBytes: cfg.Proxies.MaxListBytes(), Filter: cfg.Network.Filter()}, ExportDir: cfg.DataDir, Annotate: annotate(places), Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	registry, err := LoadSites(cfg)
	if err != nil {
		return nil, err
	}
	s.scrapes = newScrapeMetrics(func(site string) bool {
		_, err := registry.Definition(site)
		return err == nil
	})
	s.through.gateways = map[proxies.Fallback]url.URL{}
	s.browser = render.New(render.Config{Browser: cfg.Sites.Browser, Filter: cfg.Network.Filter(), Logger: logger})
	s.Sites, err = sites.NewService(registry, sites.Config{
		Memory: memoryLimit(cfg), MaxPages: cfg.Sites.MaxPages, Client: client, OutDir: cfg.Records(), Logger: logger,
		Sinks: cfg.Sites.Sinks, Secret: cfg.Sites.Secret, Judged: otherEvents{s.Events, logger}.siteJudged,
		BreakerChanged: s.BreakerChanged,
		Fetch: fetch.Config{
			Filter: cfg.Network.Filter(), NoProxy: proxies.ErrNoProxy, OnBlocked: proxies.Blocked, Via: via, Route: func() fetch.Route { return proxies.NewSession() },
			Browser: s.browser, Extractors: cfg.Sites.Extractors, Cache: cfg.Sites.Cache,
		},
		Transport:    func(def *definition.Definition) http.RoundTripper { return s.transport(def) },
		Unproxied:    s.unproxied,
		BrowserProxy: s.browserProxy,
		Observe:      s.observePage,
	})
	if err != nil {
		return nil, err
	}
	return s, s.openJobs()
}

// startJudge starts a judge on loopback and returns its URLs.
func (s *System) startJudge() ([]string, error) {
	judge, err := probe.StartJudge(probe.JudgeConfig{Logger: s.logger})
	if err != nil {
		return nil, err
	}
	s.judge.Store(judge)
	return judge.URLs, nil
}

// openJobs creates the services for jobs, agents and webhooks.
func (s *System) openJobs() (err error) {
	cfg := s.cfg().Jobs
	if s.Pipelines, err = pipeline.Load(s.cfg().Pipelines()); err != nil {
		return err
	}
	s.Documents = document.New(document.Config{
		Dir: s.cfg().Documents(), Limit: cfg.MaxDocumentBytes(), Filter: s.cfg().Network.Filter(),
		Owner: func(ctx context.Context) (string, error) { return s.Jobs.StoreID(ctx) },
	})
	sweep := s.sweepDocuments()
	s.Jobs, err = jobs.New(jobs.Config{
		Client: s.Client, Pipelines: s.Pipelines.Get, Documents: s.Documents,
		Reconcile: func(ctx context.Context) error { sweep(ctx); return nil },
		Roles:     func(ctx context.Context) (map[string]int, error) { return s.Agents.Roles(ctx) },
		Emit:      jobs.Emit{Lua: event.Lua, Keys: event.Keys}, Took: s.times.took,
		Lease: cfg.Lease, Limits: jobLimits(cfg), Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.Agents, err = agent.New(agent.Config{
		Client: s.Client, Jobs: s.Jobs, Static: s.cfg().Agents.Static, Allow: s.cfg().Agents.Allow,
		OwnerActive: s.Keys.OwnerActive, Heartbeat: agentHeartbeat(cfg), HealthEvery: s.cfg().Agents.HealthEvery, Limits: agent.Limits{Concurrency: s.cfg().Agents.Concurrency, PerMinute: s.cfg().Agents.PerMinute}, TaskRoles: s.pipelineTasks, Changed: otherEvents{s.Events, s.logger}.agentChanged, BreakerChanged: s.BreakerChanged, Tracing: s.tracing, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	hosts := limit.NewBreaker(s.Client.Redis(), limit.BreakerConfig{Changed: s.BreakerChanged, Logger: s.logger})
	s.Breakers = &api.Breakers{Hosts: hosts, Agents: s.Agents.Breaker()}
	s.Archive = archive.New(archive.Config{Client: s.Client, Address: s.cfg().Archive, Dir: s.cfg().DataDir, Logger: s.logger})
	hooks := s.cfg().Webhooks
	s.Webhooks, err = webhook.New(webhook.Config{
		Redis: s.Client.Redis(), Events: s.Events, Workflows: s.Client, StuckAfter: func() time.Duration { return s.cfg().Jobs.StuckAfter }, Job: func(ctx context.Context, id string) (any, error) { return summarize(ctx, s.Jobs, id) }, Static: hooks.Static, Filter: s.cfg().Network.Filter(),
		Timeout: hooks.Timeout, Keep: hooks.Keep, Logger: s.logger,
	})
	return err
}

// BreakerChanged emits the event that a breaker opened or closed. It is a callback for limit.BreakerConfig.
func (s *System) BreakerChanged(ctx context.Context, state limit.BreakerState) {
	otherEvents{s.Events, s.logger}.breakerChanged(ctx, state)
}

// jobLimits returns the limits of jobs from the settings.
func jobLimits(cfg config.Jobs) jobs.Limits {
	return jobs.Limits{
		StuckAfter: cfg.StuckAfter, Timeout: cfg.Timeout, CheckEvery: cfg.CheckEvery, Keep: cmp.Or(cfg.Keep, forever), KeepFor: cfg.KeepFor,
		MaxRetries: cfg.MaxRetries, Dedupe: cfg.Dedupe,
	}
}

// pipelineTasks returns the names of the Go tasks in the stages of all pipelines.
func (s *System) pipelineTasks(context.Context) ([]string, error) {
	var names []string
	for _, p := range s.Pipelines.List() {
		for _, st := range p.Stages {
			if st.Task != "" && !slices.Contains(names, st.Task) {
				names = append(names, st.Task)
			}
		}
	}
	return names, nil
}

// forever is the Keep value of jobs that are never deleted.
const forever time.Duration = -1

// ProbeConfig returns the configuration of proxy checks from the settings.
func ProbeConfig(cfg config.Config, logger *slog.Logger) probe.Config {
	p := cfg.Proxies
	return probe.Config{
		Judges: p.Judges, Key: p.JudgeKey,
		TotalTimeout: p.CheckTimeout, ConnectTimeout: p.CheckConnect, Tries: p.CheckTries,
		Concurrency: p.Concurrency, Filter: cfg.ProxyFilter(), Logger: logger,
	}
}

// annotate sets country and network of a proxy from the databases. They override the values of a list.
func annotate(places *geo.DB) func(*proxies.Proxy) {
	return func(p *proxies.Proxy) {
		place := places.Lookup(p.Exit)
		p.Country = cmp.Or(place.Country, p.Country)
		p.ASN, p.ASOrg = place.ASN, place.ASOrg
	}
}

// LoadSites loads the shipped sites and the definitions in sites.dir, by default the directory sites in the data directory.
func LoadSites(cfg config.Config) (*sites.Registry, error) {
	return sites.LoadRegistry(cfg.Definitions(), cfg.Sites.Dir != "")
}

// MissingSecrets returns an error for each secret that this process lacks and that a proxy source or a site definition
// refers to. It checks the sites called names, or all definitions of the user.
func MissingSecrets(cfg config.Config, getenv func(name string) (string, bool), names ...string) []error {
	errs := cfg.MissingForSources(getenv)
	registry, err := LoadSites(cfg)
	if err != nil {
		return errs // reported by NewSystem
	}
	return append(errs, registry.MissingSecrets(getenv, names...)...)
}

// logBroken warns about sites and pipelines with invalid definitions.
func (o *Orchestrator) logBroken() {
	for _, b := range o.Pipelines.Broken() {
		o.opts.Logger.Warn("invalid pipeline; fix its file to use it", "pipeline", b.Name, "file", b.File, "problems", b.Err)
	}
	for _, b := range o.Sites.Registry().Broken() {
		o.opts.Logger.Warn("invalid site; fix its definition to scrape it", "site", b.Name, "file", b.File, "problems", b.Err)
	}
}

// via returns the ID of the proxy that delivered a response.
func via(r *http.Response) string {
	p, _ := proxies.Used(r)
	return p.ID
}

// unproxied reports whether scrapes are direct because no proxies are configured and the pool is empty. It logs a warning
// the first time.
func (s *System) unproxied(ctx context.Context) (bool, error) {
	if !s.cfg().Proxies.Unproxied() {
		return false, nil
	}
	if n, err := s.Pool.Count(ctx); err != nil || n > 0 {
		return false, err
	}
	s.direct.Do(func() {
		s.logger.WarnContext(ctx, "no proxy sources are configured: scrapes are direct; sites see the address of this machine")
	})
	return true, nil
}

// transport returns the transport for the pages of a site. It uses the pool.
func (s *System) transport(def *definition.Definition) http.RoundTripper {
	fallback := proxies.Fallback(config.PoolFallback(cmp.Or(def.Proxy.Fallback, s.cfg().Proxies.Fallback)))
	return s.Pool.Transport(def.Site, proxies.TransportOptions{
		Fallback: fallback, PickOptions: proxies.PickOptions{Wait: def.Proxy.Wait}, Again: polite.Again,
		Direct: fetch.DirectTransport(fetch.FilterFor(def, s.cfg().Network.Filter())),
	})
}

// NewWorker returns a worker that runs the tasks of the system, and if it belongs to an orchestrator those of its schedules. ready, if not
// nil, is called when the worker accepts tasks.
func (s *System) NewWorker(name string, ofOrchestrator bool, ready func()) (*tasks.Worker, error) {
	mux := tasks.NewMux()
	s.useTracing(mux)
	mux.Use(waitForRoom)
	s.proxies.Register(mux)
	s.Sites.Register(mux)
	queues := map[string]int{"default": 1, "probe": 1, sites.Queue: 1}
	if ofOrchestrator {
		queues[scheduleQueue] = 1
		tasks.Handle(mux, scheduled, s.runScheduled)
		tasks.Handle(mux, createJob, s.runCreateJob)
	}
	setMemoryLimit(memoryLimit(s.Config()))
	worker, err := tasks.NewWorker(s.Client, mux, tasks.WorkerConfig{Release: Version,
		Queues:      queues,
		Concurrency: s.cfg().Workers.Concurrency, Grace: s.cfg().Shutdown.Drain,
		Name: name, Logger: s.logger, Ready: ready, Observe: s.Metrics.Observe, Asynq: s.asynqTasks(),
	})
	if err != nil {
		return nil, err
	}
	s.Metrics.Watch(worker)
	return worker, nil
}

// runPool writes reports on proxies until stop is called.
func (s *System) runPool() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Pool.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// refusedRest is the delay of a task after Redis rejected its writes.
const refusedRest = 5 * time.Second

// waitForRoom is a middleware that postpones a task if Redis rejects writes, for example because the disk is full. The
// attempt is not counted.
func waitForRoom(ctx context.Context, _ tasktype.Info, next func(context.Context) error) error {
	err := next(ctx)
	if tasks.Refused(err) {
		return tasks.Again(refusedRest)
	}
	return err
}

// proxySettings returns the current settings of the proxy service.
func (s *System) proxySettings() proxies.Settings {
	cfg := s.cfg()
	return proxies.Settings{Sources: s.Sources(), CanCheck: cfg.Proxies.CanCheck(), RefreshTimeout: cfg.Wait.Unknown}
}

// Refresh returns the workflow that refreshes the pool from the configured sources. It reads their files immediately.
func (s *System) Refresh(ctx context.Context) tasks.Signature[proxies.Report] {
	return s.proxies.Refresh(ctx, s.Sources()...)
}

// Sources returns the configured proxy sources.
func (s *System) Sources() []source.Source {
	var from []source.Source
	for _, c := range s.cfg().Proxies.Sources {
		c.AllowLocal = s.cfg().Proxies.AllowLocal
		from = append(from, c.Source)
	}
	if s.cfg().Proxies.Public {
		from = append(from, source.Public()...)
	}
	return from
}

// CheckProxies probes candidates in this process and adds working proxies to the pool immediately. report receives each
// result, one call at a time.
func (s *System) CheckProxies(ctx context.Context, candidates []proxies.Candidate, report func(probe.Result)) error {
	return s.proxies.Check(ctx, candidates, report)
}

// Close closes the services and the judge.
func (s *System) Close() error {
	var errs []error
	if s.Sites != nil {
		errs = append(errs, s.Sites.Close())
	}
	if s.Pool != nil {
		errs = append(errs, s.Pool.Close())
	}
	if s.Archive != nil {
		errs = append(errs, s.Archive.Close())
	}
	if s.browser != nil {
		s.browser.Close()
	}
	s.through.close()
	if judge := s.judge.Load(); judge != nil {
		errs = append(errs, judge.Close())
	}
	s.tracing.Close() // after the services, whose spans it exports
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the services: %w", err)
	}
	return nil
}

// observePage counts the fetch of a page and starts its span if tracing is enabled.
func (s *System) observePage(ctx context.Context, p observed.Page) (context.Context, func(observed.End)) {
	ctx, end := s.tracing.Page(ctx, p)
	return ctx, func(r observed.End) {
		s.scrapes.add(p.Site, r)
		end(r)
	}
}

// sweepEvery is the interval between sweeps of the documents directory.
const sweepEvery = time.Hour

// sweepDocuments returns a function that removes documents without a job, at most once an hour. It must not be called
// concurrently.
func (s *System) sweepDocuments() func(context.Context) {
	var last time.Time
	return func(ctx context.Context) {
		if time.Since(last) < sweepEvery {
			return
		}
		last = time.Now()
		switch n, err := s.Documents.Sweep(ctx, s.Jobs.HasDocument); {
		case err != nil && ctx.Err() == nil:
			s.logger.WarnContext(ctx, "cannot remove documents without a job", "err", err)
		case n > 0:
			s.logger.InfoContext(ctx, "removed documents without a job", "files", n)
		}
	}
}

// useTracing adds the middleware of tasks: log attributes for request, job, workflow and node, a span if tracing is enabled,
// and a log line per attempt (level info for a failure, otherwise debug).
func (s *System) useTracing(mux *tasks.Mux) {
	mux.Use(identify)
	if p := s.tracing.Provider(); p != nil {
		mux.Use(otel.Middleware(s.Client, otel.Config{Provider: p, Logger: s.logger}))
	}
	mux.Use(logRuns(s.logger))
}

func identify(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
	return next(logctx.Receive(ctx, info.Headers, logctx.Job, info.Workflow, logctx.Workflow, info.Workflow, logctx.Node, info.Node))
}

func logRuns(logger *slog.Logger) tasks.Middleware {
	return func(ctx context.Context, info tasktype.Info, next func(context.Context) error) error {
		level, start := slog.LevelDebug, time.Now()
		err := next(ctx)
		if tasks.IsFailure(err) && ctx.Err() == nil {
			level = slog.LevelInfo
		}
		if !logger.Enabled(ctx, level) {
			return err
		}
		args := []any{"task", info.Task, "attempt", info.Attempt, "took", time.Since(start)}
		if err != nil {
			args = append(args, "err", clip.Line(err.Error(), 500))
		}
		logger.Log(ctx, level, "task ran", args...)
		return err
	}
}

// browserProxies serves the pool to the browser of this process: a gateway on loopback for each fallback.
type browserProxies struct {
	mu       sync.Mutex // guards the fields below
	gateways map[proxies.Fallback]url.URL
	stop     []context.CancelFunc
	running  sync.WaitGroup
}

// browserProxy returns the URL of a gateway to the pool for a visitor of a site, whose pages use one proxy. It returns "" if the
// browser is on another machine and cannot reach the gateway.
func (s *System) browserProxy(def *definition.Definition, visitor string) (string, error) {
	if u, err := url.Parse(s.cfg().Sites.Browser); err == nil && u.Host != "" && !addressfilter.IsLoopback(u.Hostname()) {
		return "", nil
	}
	fallback := proxies.Fallback(config.PoolFallback(cmp.Or(def.Proxy.Fallback, s.cfg().Proxies.Fallback)))
	b := &s.through
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.gateways[fallback]
	if !ok {
		key := rand.Text()
		g, err := gateway.New(gateway.Config{Pool: s.Pool, Keys: []string{key}, Fallback: fallback, Filter: s.cfg().Network.Filter(), Logger: s.logger})
		if err != nil {
			return "", err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", fmt.Errorf("serve proxies to the browser: %w", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		b.running.Go(func() { _ = g.Serve(ctx, l) }) // until close; afterwards the browser has no proxies
		b.stop = append(b.stop, cancel)
		at = url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("", key)}
		b.gateways[fallback] = at
	}
	key, _ := at.User.Password()
	at.User = url.UserPassword("muster-session-"+visitor, key)
	return at.String(), nil
}

func (b *browserProxies) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, stop := range b.stop {
		stop()
	}
	b.running.Wait()
}

// memoryLimit returns the soft memory limit of this process in bytes: workers.memory_limit, GOMEMLIMIT, or four fifths of the
// limit of the container, in this order; 0 means no limit.
func memoryLimit(cfg config.Config) int64 {
	if mb := cfg.Workers.MemoryLimit; mb > 0 {
		return int64(mb) << 20
	}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return containerMemory("/") / 5 * 4
}

// containerMemory returns the memory limit of the control group (version 1 or 2) below root; 0 means no limit.
func containerMemory(root string) int64 {
	group := ""
	if data, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for line := range strings.Lines(string(data)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				group = path
			}
		}
	}
	least := int64(math.MaxInt64)
	look := func(path string) {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 { // "max" means no limit
			least = min(least, n)
		}
	}
	look("sys/fs/cgroup/memory/memory.limit_in_bytes")
	for ; ; group = filepath.Dir(group) { // a parent group may have a lower limit
		look(filepath.Join("sys/fs/cgroup", group, "memory.max"))
		if group == "/" || group == "." || group == "" {
			break
		}
	}
	if least >= 1<<60 { // version 1 without a limit
		return 0
	}
	return least
}

// setMemoryLimit sets the soft limit of the garbage collector to 90% of limit, unless GOMEMLIMIT is set.
func setMemoryLimit(limit int64) {
	if limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
