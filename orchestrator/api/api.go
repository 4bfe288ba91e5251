// Package api serves an orchestrator over HTTP: jobs, pipelines, agents, sites,
// metrics and health as JSON, described at /openapi.json, pages of the same
// below /ui/, and the asynqmon dashboard of the queues.
//
// Callers can read the data of jobs, and create, cancel and delete jobs. Therefore it listens on this machine only
// unless keys are configured, it can be made read-only, and web pages of other origins can neither read its responses
// nor make changes.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/net/netutil"

	"muster/internal/tracing"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/jobs/document"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/archive"
	"muster/orchestrator/event"
	"muster/orchestrator/health"
	"muster/orchestrator/redisd"
	"muster/orchestrator/webhook"
	"muster/proxies"
	"muster/sites"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// Config configures the interface.
type Config struct {
	// Client is the connection to the Redis of the jobs and workflows. Required.
	Client *tasks.Client
	// Jobs, Events, Pipelines, Documents, Agents, Webhooks and Archive implement the operations. The operations of a nil
	// service are omitted.
	Jobs      *jobs.Service
	Events    *event.Stream
	Pipelines *pipeline.Registry
	Documents *document.Store
	Agents    *agent.Service
	Webhooks  *webhook.Service
	Archive   *archive.Archive
	// Lease is how long agents hold work without a heartbeat. Defaults to 30 s.
	Lease time.Duration
	// Listen is the address. Beyond loopback requests must need a key. Defaults to
	// 127.0.0.1:8000.
	Listen string
	// Write allows changes. Defaults to read-only.
	Write bool
	// Gate identifies callers. By default every request has the role admin.
	Gate *access.Gate
	// Rate is how many requests a second a client may send, and Burst how many at
	// once. Defaults to any number.
	Rate  float64
	Burst int
	// Origins are the origins of other web pages that may call the interface. Defaults to none.
	Origins []string
	// Keys and Audit implement their operations; changes are recorded in Audit. The operations of a nil value are
	// omitted.
	Keys  *access.Keys
	Audit *access.Audit
	// Queue returns the artifact queue of a name. Defaults to none: the operations on queues are left out.
	Queue func(name string) *workqueue.Queue
	// Breakers are the circuit breakers. Defaults to none: their operations are left out.
	Breakers *Breakers
	// Hosts returns further host names that requests may use, beside localhost, the host of Listen, and bare addresses. It
	// may change at run time. Defaults to none.
	Hosts func() []string
	// Sites are served below /ui/ and /sites. Without them, / redirects to the queues.
	Sites *sites.Service
	// Proxies is the pool. Defaults to none: its operations and pages are left out.
	Proxies *proxies.Service
	// Check runs the health checks, for the overview and /ready.
	// Defaults to none.
	Check func(context.Context) health.Report
	// Metrics serves /metrics to callers who may read the pages. Defaults to none.
	Metrics http.Handler
	// Tracing makes a span for each request. Defaults to none.
	Tracing *tracing.Tracing
	// Timing counts and times the requests. Defaults to none.
	Timing *Timing
	// Grace is the time that running requests have to complete during a shutdown. Defaults to 5 s.
	Grace time.Duration
	// Component is the name of the process in /health. Defaults to orchestrator.
	Component string
	// Ready is called with the address of the pages once they are served. Optional.
	Ready func(url string)
	// Logger defaults to none.
	Logger *slog.Logger

	closing context.Context // done when the server shuts down; ends requests that wait
	routes  *routes         // the registered routes, for the middleware
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8000"
	}
	if c.Lease <= 0 {
		c.Lease = 30 * time.Second
	}
	if c.closing == nil {
		c.closing = context.Background()
	}
	c.Component = cmp.Or(c.Component, "orchestrator")
	if c.Hosts == nil {
		c.Hosts = func() []string { return nil }
	}
	if c.Grace <= 0 {
		c.Grace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Handler is everything that is served.
func Handler(cfg Config) (http.Handler, error) {
	cfg = cfg.withDefaults()
	served := newRoutes()
	mon := queues(cfg.Client, cfg.Write)
	served.handle("GET "+Root+"/", mon, access.Viewer)
	served.handle(Root+"/", http.MaxBytesHandler(mon, maxBody), access.Admin) // lists of ids
	if cfg.Metrics != nil {
		served.handle("GET /metrics", cfg.Metrics, access.Viewer)
	}
	home := Root + "/"
	if cfg.Sites != nil {
		servePages(served, cfg)
		home = "/ui/"
	}
	served.handle("GET /{$}", http.RedirectHandler(home, http.StatusFound), access.Viewer)
	operations(served, cfg)
	return cfg.layered(served)
}

// layered wraps the routes with the middleware. The first layer is the outermost.
func (c Config) layered(served *routes) (http.Handler, error) {
	c.routes = served
	crossOrigin, err := c.crossOrigin()
	if err != nil {
		return nil, err
	}
	layers := []func(http.Handler) http.Handler{
		paced,
		bounded,
		c.identified,
		c.traced,
		c.timed,
		c.logged,
		c.recovered,
		c.hardened,
		c.hosted,
		crossOrigin,
		c.authenticated,
		c.permitted,
		c.sized,
		c.audited,
		c.readOnly,
	}
	if c.Client != nil {
		redisd.Bound(c.Client.Redis())
	}
	next := routed(served.mux)
	for _, layer := range slices.Backward(layers) {
		next = layer(next)
	}
	return next, nil
}

// Serve serves until ctx is done, then waits for running requests and returns nil. It returns an error immediately if
// it cannot listen.
func Serve(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	cfg.closing = ctx
	closed, err := cfg.checkAccess(ctx)
	if err != nil {
		return err
	}
	handler, err := Handler(cfg)
	if err != nil {
		return err
	}
	path := Root + "/"
	if cfg.Sites != nil {
		path = "/ui/"
	}
	if !closed {
		cfg.Logger.Warn("the HTTP interface is open: every user of this machine can use it as an admin; create a key with muster keys create, or set api.keys", "listen", cfg.Listen)
	}
	return serve(ctx, cfg, handler, "HTTP interface", path)
}

// ServeMetrics serves only the metrics of cfg, and /health and /ready, as Serve does.
func ServeMetrics(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if _, err := cfg.checkAccess(ctx); err != nil {
		return err
	}
	served := newRoutes()
	served.handle("GET /metrics", cfg.Metrics, access.Viewer)
	state := &server{cfg: cfg, api: newHuma(served.mux), started: time.Now()}
	addState(state)
	served.addOperations(state.api)
	handler, err := cfg.layered(served)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, http.MaxBytesHandler(handler, maxBody), "metrics", "/metrics")
}

func serve(ctx context.Context, cfg Config, handler http.Handler, what, path string) error {
	l, err := listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	return serveOn(ctx, l, cfg, handler, what, path)
}

// mostConnections limits the open connections of a listener, so that clients cannot use up the file descriptors of the process.
const mostConnections = 4096

// serveOn serves the connections of l, and closes l.
func serveOn(ctx context.Context, l net.Listener, cfg Config, handler http.Handler, what, path string) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, mostConnections)) }()
	url := pageURL(l.Addr(), path)
	cfg.Logger.Info(what+" is up", "url", url, "read_only", !cfg.Write)
	if cfg.Ready != nil {
		cfg.Ready(url)
	}

	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", what, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Grace)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	<-failed
	return nil
}

// pageURL returns the address of the pages for a browser on this machine.
func pageURL(addr net.Addr, path string) string {
	host := addr.String()
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return "http://" + host + path
}

// ErrTaken is the error if another program listens on the address.
var ErrTaken = errors.New("address is taken")

func listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen at %s: %w by another program; choose another, or port 0 for any", addr, ErrTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w; choose another address", addr, err)
	}
	return l, nil
}

// server has the operations of the interface.
type server struct {
	cfg     Config
	api     huma.API
	started time.Time
	streams *shares // open streams of events
	leases  *shares // open calls for leases of tasks
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// operations adds the operations of the services in cfg.
func operations(served *routes, cfg Config) {
	s := &server{cfg: cfg, api: newHuma(served.mux), started: time.Now(), streams: newShares("streams of events", maxStreams, maxStreamsEach), leases: newShares("calls for leases", maxLeases, maxLeasesEach)}
	addState(s)
	addWorkflows(s)
	if cfg.Jobs != nil {
		addJobs(s)
		addJobCommands(s)
		addCreate(s)
		addItems(s)
		addNumbers(s)
		addCompare(s)
		addReports(s)
		if cfg.Documents != nil {
			addDocuments(s)
		}
	}
	if cfg.Events != nil {
		addEvents(s, cfg.Events.Read)
	}
	if cfg.Pipelines != nil {
		addPipelines(s)
	}
	if cfg.Agents != nil {
		addAgents(s)
		addAssignments(s)
	}
	if cfg.Webhooks != nil {
		addWebhooks(s)
	}
	if cfg.Archive != nil {
		addArchive(s)
	}
	if cfg.Sites != nil {
		addSites(s)
		addScrapes(s)
	}
	if cfg.Keys != nil {
		addKeys(s)
	}
	if cfg.Proxies != nil {
		addProxies(s)
	}
	if cfg.Queue != nil {
		addQueues(s)
	}
	if cfg.Breakers != nil {
		addBreakers(s)
	}
	served.addOperations(s.api)
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's; Problem replaces it
	delete(schemas, "ErrorDetail")
	spec := sync.OnceValue(s.description) // most servers are never asked
	served.handle("GET /openapi.json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(spec())
	}), access.Viewer)
}

// untilShutdown returns a context that is done with ctx, and when the server
// shuts down.
func (s *server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.cfg.closing, cancel)
	return ctx, func() { stop(); cancel() }
}
