// Package api serves what people and programs see of an orchestrator over
// HTTP: the state of its sites, as pages and as JSON, the asynqmon dashboard of the
// queues, metrics, and health.
//
// The pages can show what tasks carry, and can stop and delete them. So they
// are for this machine only unless keys are set, they are read-only
// unless the configuration says otherwise, and a web page from elsewhere can
// neither read them nor act through them.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"muster/orchestrator/health"
	"muster/sites"
	"muster/tasks"
)

// Config says what is served, where, and to whom.
type Config struct {
	// Client is the connection to what is shown. Needed.
	Client *tasks.Client
	// Listen is the address. Beyond loopback it needs Keys. Defaults to
	// 127.0.0.1:8080.
	Listen string
	// Write allows changes. Defaults to read-only.
	Write bool
	// Keys are the keys of which a request needs one. Defaults to none: every
	// request is served.
	Keys []string
	// Hosts are further host names that requests may use, beside localhost,
	// the host of Listen, and bare addresses. Defaults to none.
	Hosts []string
	// Sites are shown under / and answered under /api/. Defaults to none: /
	// leads to the queues.
	Sites *sites.Service
	// Check runs the health checks, for the page of the sites. Defaults to none.
	Check func(context.Context) health.Report
	// Health answers under /health, which is open without a key. Defaults to
	// none.
	Health http.Handler
	// Metrics answers under /metrics, to those who may see the pages. Defaults
	// to none.
	Metrics http.Handler
	// Grace is how long requests may take to end. Defaults to 5 s.
	Grace time.Duration
	// Ready is called with the address of the pages once they are served. Optional.
	Ready func(url string)
	// Logger defaults to none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8080"
	}
	if c.Grace <= 0 {
		c.Grace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// maxBody is the largest request that is read; asynqmon's are lists of ids.
const maxBody = 1 << 20

// Handler is everything that is served.
func Handler(cfg Config) (http.Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.checkAccess(); err != nil {
		return nil, err
	}
	guarded := http.NewServeMux()
	guarded.Handle(Root+"/", dashboard(cfg.Client, !cfg.Write))
	if cfg.Metrics != nil {
		guarded.Handle("GET /metrics", cfg.Metrics)
	}
	if cfg.Sites != nil {
		serveSites(guarded, cfg)
		guarded.HandleFunc("GET /style.css", style)
	} else {
		guarded.Handle("/{$}", http.RedirectHandler(Root+"/", http.StatusFound))
	}

	mux := http.NewServeMux()
	mux.Handle("/", cfg.guard(guarded))
	if cfg.Health != nil {
		open := cfg
		open.Keys = nil
		mux.Handle("/health", open.guard(cfg.Health))
	}
	return http.MaxBytesHandler(mux, maxBody), nil
}

// Serve serves until ctx is done, then lets running requests end and returns
// nil. It returns an error before it serves anything if it cannot listen.
func Serve(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	handler, err := Handler(cfg)
	if err != nil {
		return err
	}
	path := Root + "/"
	if cfg.Sites != nil {
		path = "/"
	}
	return serve(ctx, cfg, handler, "dashboard", path)
}

// ServeMetrics serves only the metrics of cfg, as Serve does.
func ServeMetrics(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if err := cfg.checkAccess(); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", cfg.Metrics)
	return serve(ctx, cfg, http.MaxBytesHandler(cfg.guard(mux), maxBody), "metrics", "/metrics")
}

func serve(ctx context.Context, cfg Config, handler http.Handler, what, path string) error {
	l, err := listen(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	url := pageURL(l.Addr(), path)
	cfg.Logger.Info(what+" is up", "url", url, "read_only", !cfg.Write, "keys", len(cfg.Keys))
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

// ErrTaken says that another program listens at the address.
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
