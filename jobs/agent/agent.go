package agent

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/limit"
	"muster/internal/luascript"
	"muster/internal/tracing"
	"muster/jobs"
	"muster/tasks"
)

//go:embed lua/*.lua
var sources embed.FS

// scripts are the files of lua by name.
var scripts = luascript.Read(sources)

// The states of an agent.
const (
	StateHealthy     = "healthy"     // it called within three heartbeats, or its last health check succeeded
	StateUnavailable = "unavailable" // it is silent, or its last health check failed
	StateDraining    = "draining"    // no new work is assigned to it
	StateNew         = "new"         // an agent of the configuration before its first health check
)

// States lists all states of an agent.
var States = []string{StateHealthy, StateUnavailable, StateDraining, StateNew}

// Errors that callers check for; see also the errors of package jobs.
var (
	ErrNoAgent    = errors.New("no such agent; register it again")
	ErrNotYours   = errors.New("the assignment belongs to another agent")
	ErrNoneSuch   = errors.New("no such assignment, or it ended more than ten minutes ago")
	ErrTooMany    = errors.New("there are too many; try again later")
	ErrNotOwner   = errors.New("the agent belongs to another key; use that one, or another name, or delete it with muster agents delete")
	ErrNotAllowed = errors.New("the URL is not below one of the setting agents.allow")
)

// Agent is a program that does the work of roles.
type Agent struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Roles      []string          `json:"roles"`
	Capacity   int               `json:"capacity"`      // maximum number of concurrent assignments
	URL        string            `json:"url,omitempty"` // to which work is pushed
	Labels     map[string]string `json:"labels,omitempty"`
	Static     bool              `json:"static,omitempty"` // defined in the configuration
	State      string            `json:"state"`
	Held       int               `json:"held"` // number of open assignments
	Done       int64             `json:"done"`
	Failed     int64             `json:"failed"`
	Usage      map[string]int64  `json:"usage,omitempty"` // totals over all its assignments
	LastSeen   time.Time         `json:"last_seen,omitzero"`
	Registered time.Time         `json:"registered"`
	LastError  string            `json:"last_error,omitempty"`
	Health     string            `json:"health,omitempty"`         // why it is unavailable
	Checked    time.Time         `json:"checked,omitzero"`         // time of the last health check
	Breaker    string            `json:"breaker,omitempty"`        // state of the breaker of its URL: closed, open or half_open
	CurrentJob string            `json:"current_job_id,omitempty"` // from its health check
	Activity   string            `json:"last_activity,omitempty"`  // from its health check
}

// Config configures a Service.
type Config struct {
	Client   *tasks.Client // Required.
	Jobs     *jobs.Service // leases work and receives its results. Required.
	Static   []Static      // agents defined in the configuration. Defaults to none.
	Allow    []string      // URL prefixes to which work may be pushed. Agents in Static are exempt. Defaults to none.
	Limits   Limits        // limits by role. Defaults to none.
	Max      int           // maximum number of registered agents, not counting Static. Defaults to 1000.
	MaxOwned int           // maximum number of registered agents per owner. Defaults to a quarter of Max.

	Heartbeat     time.Duration // interval at which agents should call. Defaults to 15 s.
	ForgetAfter   time.Duration // time after which a silent agent is removed. Defaults to 24 h.
	HealthEvery   time.Duration // interval of health checks. Defaults to 15 s.
	HealthMost    time.Duration // maximum interval of health checks of a failing agent. Defaults to 5 min.
	HealthTimeout time.Duration // timeout of a health check. Defaults to 5 s.
	Tick          time.Duration // polling interval for work whose wake-up was lost. Defaults to 2 s.

	// OwnerActive reports whether the owner of an agent is still valid, for example because its API key exists. If not, no work
	// is pushed to the agent. It is not called for agents without an owner. Defaults to always true.
	OwnerActive func(ctx context.Context, owner string) (bool, error)

	// TaskRoles returns the names of the Go tasks that stages may use. Defaults to the tasks of all live workers.
	TaskRoles func(ctx context.Context) ([]string, error)

	// Changed is called with the event agent.registered or agent.removed. Defaults to none.
	Changed func(ctx context.Context, event string, a Agent)
	// BreakerChanged is called when the breaker of an agent opens or closes; see limit.BreakerConfig. Defaults to none.
	BreakerChanged func(context.Context, limit.BreakerState)

	Tracing *tracing.Tracing // records spans of assignments. Defaults to none.
	Logger  *slog.Logger     // Defaults to slog.Default().
}

// withDefaults returns cfg with defaults for unset fields.
func (cfg Config) withDefaults() Config {
	cfg.Heartbeat = cmp.Or(max(cfg.Heartbeat, 0), 15*time.Second)
	cfg.ForgetAfter = cmp.Or(max(cfg.ForgetAfter, 0), 24*time.Hour)
	cfg.HealthEvery = cmp.Or(max(cfg.HealthEvery, 0), 15*time.Second)
	cfg.HealthMost = max(cmp.Or(cfg.HealthMost, 5*time.Minute), cfg.HealthEvery)
	cfg.HealthTimeout = cmp.Or(max(cfg.HealthTimeout, 0), 5*time.Second)
	cfg.Tick = cmp.Or(max(cfg.Tick, 0), 2*time.Second)
	cfg.Max = cmp.Or(cfg.Max, 1000)
	cfg.MaxOwned = cmp.Or(cfg.MaxOwned, max(1, cfg.Max/4))
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context, string, Agent) {}
	}
	if cfg.OwnerActive == nil {
		cfg.OwnerActive = func(context.Context, string) (bool, error) { return true, nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return cfg
}

// Service registers agents and assigns work to them. It is safe for concurrent use. Any number of processes may use the
// same Redis.
type Service struct {
	cfg    Config
	rdb    redis.UniversalClient
	keys   keys
	log    *slog.Logger
	counts counts

	policy      atomic.Pointer[policy]
	limits      atomic.Pointer[Limits]
	announceNow chan struct{} // has a value when the agents of the configuration may have changed
	breaker     *limit.Breaker
	transport   *http.Transport // to agents with a URL
	client      *http.Client
	waiters     *waiters // polls, agents and Go tasks that wait for work
	server      *server
	live        taskList

	stopped chan struct{} // closed when Run ends its work
}

// New returns a service. It does no I/O. Start it with Run.
func New(cfg Config) (*Service, error) {
	if cfg.Client == nil || cfg.Jobs == nil {
		return nil, errors.New("agents: Client and Jobs are required")
	}
	cfg = cfg.withDefaults()
	s := &Service{
		cfg: cfg, rdb: cfg.Client.Redis(), keys: newKeys(), log: cfg.Logger, counts: newCounts(),
		announceNow: make(chan struct{}, 1), transport: newTransport(), stopped: make(chan struct{}),
	}
	if err := s.Reload(cfg.Static, cfg.Allow, cfg.Limits, cfg.HealthEvery); err != nil {
		return nil, err
	}
	s.breaker = limit.NewBreaker(s.rdb, limit.BreakerConfig{
		Namespace: "muster:agents", Threshold: 5, Cooldown: cfg.HealthEvery, MaxCooldown: cfg.HealthMost,
		Trials: 2, Changed: cfg.BreakerChanged, Logger: cfg.Logger,
	})
	// Redirects are not followed, because they could lead to a URL outside of Config.Allow.
	s.client = &http.Client{Transport: cfg.Tracing.Client(s.transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.waiters, s.server = newWaiters(s), newServer(s)
	return s, nil
}

// policy is the part of Config that Reload replaces.
type policy struct {
	allow       []prefix
	static      []record // of the configuration
	healthEvery time.Duration
}

// fixed reports whether an agent of the configuration has a name.
func (p *policy) fixed(name string) bool {
	return slices.ContainsFunc(p.static, func(r record) bool { return r.Name == name })
}

// Reload replaces Config.Static, Config.Allow, Config.Limits and Config.HealthEvery. Registered agents stay, but no work
// is pushed to a URL outside Allow. An agent that is missing from static is forgotten like others. If Reload returns an error, nothing has changed.
func (s *Service) Reload(static []Static, allow []string, limits Limits, healthEvery time.Duration) error {
	p := policy{healthEvery: cmp.Or(max(healthEvery, 0), s.cfg.HealthEvery)}
	for i, text := range allow {
		pre, err := parsePrefix(text)
		if err != nil {
			return fmt.Errorf("agents.allow[%d]: %w", i, err)
		}
		p.allow = append(p.allow, pre)
	}
	var errs []error
	if p.static, errs = staticRecords(static); len(errs) > 0 {
		return errors.Join(errs...)
	}
	s.policy.Store(&p)
	s.limits.Store(s.newLimits(limits))
	select {
	case s.announceNow <- struct{}{}:
	default:
	}
	return nil
}

// Run wakes the polls of Lease, pushes work to agents, runs Go tasks, checks the health of agents and ends assignments with
// expired leases, until ctx is done. Then polls return without work, and the work of open requests to agents is released.
// Any number of processes may call Run, each once per Service.
func (s *Service) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, part := range []func(context.Context){
		s.waiters.run, s.server.run, s.checkHealth, s.lookAfter, s.keepRoster,
	} {
		wg.Go(func() { part(ctx) })
	}
	<-ctx.Done()
	close(s.stopped)
	wg.Wait()
	s.transport.CloseIdleConnections()
	return nil
}

// lookAfter ends assignments whose leases have expired.
func (s *Service) lookAfter(ctx context.Context) {
	every(ctx, max(min(2*s.cfg.Tick, 10*time.Second), 10*time.Millisecond), func(ctx context.Context) {
		s.warn(ctx, "end assignments whose leases have expired", s.endLapsed(ctx))
	})
}

// every calls do at once and then at intervals, until ctx ends.
func every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// now returns the time of Redis. Agents and assignments use no other clock, because the clocks of processes differ.
func (s *Service) now(ctx context.Context) (time.Time, error) { return s.rdb.Time(ctx).Result() }

// warn logs err, unless it is nil or ctx is done.
func (s *Service) warn(ctx context.Context, doing string, err error, args ...any) {
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "agents: cannot "+doing, append(args, "err", err)...)
	}
}

// cleanupContext returns a context for cleanup: it has the values of ctx, is not canceled with it, and ends after 5 s.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}
