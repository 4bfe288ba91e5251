package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/redisd"
	"muster/orchestrator/supervise"
	"muster/tasks"
	"muster/tasks/metrics"
	"muster/tasks/tasktype"
)

// workersUp is the start timeout of workers.
const workersUp = 20 * time.Second

// pingTimeout is the response timeout for workers of other processes.
const pingTimeout = 2 * time.Second

// Workers manages the workers that an orchestrator starts or uses. Its methods may be called concurrently.
type Workers struct {
	system   *System
	opts     Options
	redisURL string
	scope    *scope // stops them

	mu      sync.Mutex    // guards the fields below
	started bool          // by this process, or other workers are in use
	own     bool          // started by this process
	local   *tasks.Worker // of this process; nil if none
	file    string        // settings file of worker processes; "" if there are none
	writing bool          // this process writes records
}

// Start starts workers, in this process or as supervised child processes, and returns when all of them accept tasks. It does
// nothing if they are running or, with Options.Reuse, if other workers are. Afterwards this process writes records, including
// records of pages that workers on other machines fetch.
func (w *Workers) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return nil
	}
	w.writeRecords(ctx)
	if w.opts.Reuse {
		n, err := w.responding(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			w.opts.Logger.InfoContext(ctx, "using running workers", "workers", n)
			w.started = true
			return nil
		}
	}
	start := w.startInProcess
	if w.system.cfg().Workers.Processes > 0 {
		start = w.startProcesses
	}
	if err := start(ctx); err != nil {
		return fmt.Errorf("start workers: %w", err)
	}
	w.started, w.own = true, true
	return nil
}

// writeRecords starts to write the records of scrapes. The scope stops it after the workers.
func (w *Workers) writeRecords(ctx context.Context) {
	if w.writing {
		return
	}
	w.writing = true
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.system.Sites.Run(running) }()
	w.scope.add("records", func(context.Context) error {
		stop()
		return <-ended
	})
}

// responding returns the number of workers that reply to a ping. Killed workers remain listed until their heartbeat expires.
func (w *Workers) responding(ctx context.Context) (int, error) {
	if live, err := w.system.Client.Inspect().Workers(ctx); err == nil && !slices.ContainsFunc(live, func(t tasktype.Worker) bool { return !isGone(t) }) {
		return 0, nil
	}
	pongs, err := w.system.Client.Inspect().PingWorkers(ctx, pingTimeout)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range pongs {
		if p.Answered {
			n++
		}
	}
	return n, nil
}

// isGone reports whether the process of a listed worker ran on this machine and has exited.
func isGone(w tasktype.Worker) bool {
	if host, err := os.Hostname(); err != nil || w.Host != host || w.PID <= 0 {
		return false
	}
	p, err := os.FindProcess(w.PID)
	return err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// expireGone expires the leases of exited workers of this machine, so that their tasks can run immediately. It
// requires that only this machine uses the Redis.
func (s *System) expireGone(ctx context.Context) {
	live, err := s.Client.Inspect().Workers(ctx)
	if err != nil {
		s.logger.WarnContext(ctx, "cannot list workers to find exited ones", "err", err)
	}
	for _, w := range live {
		if isGone(w) {
			s.expireLeases(w.Name)
		}
	}
}

// startInProcess runs a worker in this process.
func (w *Workers) startInProcess(ctx context.Context) error {
	ready := make(chan struct{})
	worker, err := w.system.NewWorker("", !w.opts.Reuse, func() { close(ready) })
	if err != nil {
		return err
	}
	w.local = worker
	// The tasks must outlive ctx: their callers return first, then the scope drains the worker.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	stopPool := w.system.runPool()
	w.scope.add("workers", func(hard context.Context) error {
		defer stopPool()
		defer context.AfterFunc(hard, worker.Kill)()
		stop()
		return <-ended
	})
	select {
	case <-ready:
		return nil
	case err := <-ended:
		ended <- err // for the scope
		return cmp.Or(err, errors.New("the worker stopped during startup"))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(workersUp):
		return cmp.Or(w.system.Client.Writable(ctx), fmt.Errorf("the worker did not start within %s", workersUp))
	}
}

// startProcesses starts workers as child processes.
func (w *Workers) startProcesses(ctx context.Context) error {
	settings := w.system.Config()
	file := workerSettings(settings, os.Getpid())
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	w.file = file
	if err := w.writeSettings(settings); err != nil {
		return err
	}
	w.scope.add("settings of workers", func(context.Context) error { return os.Remove(file) })
	var names []string
	var children []*supervise.Process
	w.scope.add("workers", func(hard context.Context) error {
		var stops errgroup.Group
		for _, child := range children {
			stops.Go(func() error {
				defer context.AfterFunc(hard, func() { _ = child.Kill() })() // Stop returns the exit error
				return child.Stop(context.WithoutCancel(hard))
			})
		}
		return stops.Wait()
	})
	for i := range w.system.cfg().Workers.Processes {
		name := fmt.Sprintf("worker-%d", i+1)
		fleet := workerName(os.Getpid(), name)
		names = append(names, fleet)
		args := []string{"worker", "--name", fleet}
		if !w.opts.Reuse {
			args = append(args, "--of-orchestrator")
		}
		if first := w.system.cfg().Workers.Metrics; first != "" {
			address, err := nthAddress(first, i)
			if err != nil {
				return fmt.Errorf("workers.metrics_listen: %w", err)
			}
			args = append(args, "--metrics-listen", address)
		}
		child, err := supervise.Start(supervise.Config{
			Name:    name,
			Args:    args,
			Env:     config.Environ(file),
			LogFile: w.system.cfg().WorkerLog(),
			PIDDir:  runDir(w.system.Config()),
			Grace:   w.system.cfg().Shutdown.Drain + 5*time.Second,
			OnExit: func(e supervise.Exit) {
				if e.Stopping {
					return
				}
				w.opts.Logger.WarnContext(ctx, "a worker process exited; other workers take over its tasks", "worker", name, "pid", e.PID, "err", e.Err)
				w.system.expireLeases(fleet)
			},
			Logger: w.opts.Logger,
		})
		if err != nil {
			return err
		}
		children = append(children, child)
	}
	return w.await(ctx, names)
}

// nthAddress returns a listen address with n added to its port. Port 0, which selects a free port, does not change.
func nthAddress(address string, n int) (string, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		return "", err
	}
	if port == 0 {
		return address, nil
	}
	if port += n; port > 65535 {
		return "", fmt.Errorf("worker %d would listen at port %d; use a port of at most %d", n+1, port, 65535-n)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// workerSettings returns the settings file of the worker processes of an orchestrator.
func workerSettings(cfg config.Config, owner int) string {
	return filepath.Join(runDir(cfg), fmt.Sprintf("settings.%d.yaml", owner))
}

// workerName returns the name of a worker process of the orchestrator with the PID owner on this machine.
func workerName(owner int, process string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s.%d.%s", host, owner, process)
}

// expireLeases expires the leases of an exited worker, so that its tasks can run immediately.
func (s *System) expireLeases(worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Client.ExpireLeases(ctx, worker); err != nil {
		// The tasks run when the leases expire.
		s.logger.WarnContext(ctx, "cannot expire the leases of an exited worker", "worker", worker, "err", err)
	}
}

// await waits until all workers called names are listed.
func (w *Workers) await(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, workersUp, fmt.Errorf(
		"not all of the %d worker processes started within %s; see %s", len(names), workersUp, w.system.cfg().WorkerLog()))
	defer cancel()
	for {
		live, err := w.system.Client.Inspect().Workers(ctx)
		if err == nil {
			up := map[string]bool{}
			for _, one := range live {
				up[one.Name] = true
			}
			missing := 0
			for _, n := range names {
				if !up[n] {
					missing++
				}
			}
			if missing == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Elsewhere reports whether other processes run workers on this Redis.
func (w *Workers) Elsewhere(ctx context.Context) (bool, error) {
	n, err := w.responding(ctx)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return n > 0 && !w.started, nil
}

// alive returns an error with advice if no workers are running. It returns nil if Redis is unavailable.
func (w *Workers) alive(ctx context.Context) error {
	w.mu.Lock()
	own := w.own
	w.mu.Unlock()
	if own { // supervised or in this process
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*w.system.cfg().Workers.PingTimeout)
	defer cancel()
	live, err := w.system.Client.Inspect().Workers(ctx)
	if err == nil && len(live) == 0 {
		// While Redis rejects writes, and shortly afterwards, workers are not listed, so ping them.
		var pongs []tasktype.Pong
		if pongs, err = w.system.Client.Inspect().PingWorkers(ctx, w.system.cfg().Workers.PingTimeout); err == nil && len(pongs) == 0 {
			return errors.New("no workers are running; start one with muster worker or muster start")
		}
	}
	if err != nil {
		// Redis is unavailable or rejects writes. Other parts report that, and it is usually temporary.
		w.opts.Logger.DebugContext(ctx, "cannot list the workers", "err", err)
	}
	return nil
}

// reload passes new settings to the workers that this process started.
func (w *Workers) reload(cfg config.Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local != nil {
		w.local.SetConcurrency(cfg.Workers.Concurrency)
	}
	if w.file != "" {
		return w.writeSettings(cfg)
	}
	return nil
}

// writeSettings writes the settings of the worker processes.
func (w *Workers) writeSettings(cfg config.Config) error {
	cfg.Redis.URL, cfg.Redis.Mode = w.redisURL, string(redisd.External)
	return cfg.Write(w.file)
}

// WorkerOptions are the options of RunWorker besides the settings.
type WorkerOptions struct {
	Name   string          // worker name. Default: a unique name
	Hard   context.Context // aborts the drain when done. Default: never
	Logger *slog.Logger    // Default: no logging
	Ready  func()          // called when the worker accepts tasks; optional
	// OfOrchestrator makes the worker run the tasks of the orchestrator's schedules, with its definitions and files.
	OfOrchestrator bool
	// Watch supplies new settings while the worker runs. Optional.
	Watch Watch
}

// RunWorker processes tasks from the Redis of the settings, or of the orchestrator that runs on the data directory, until
// ctx is done. Then it waits for running tasks for at most the drain time of the settings. It serves metrics if
// workers.metrics_listen is set. If the orchestrator stops the Redis, RunWorker returns redisd.ErrGone.
func RunWorker(ctx context.Context, cfg config.Config, opts WorkerOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Hard == nil {
		opts.Hard = context.Background()
	}
	if cfg.Redis.URL != "" {
		return runWorker(ctx, cfg, cfg.Redis.URL, opts)
	}
	url, err := redisd.Discover(ctx, cfg.DataDir)
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	hard, kill := context.WithCancel(opts.Hard)
	defer kill()
	opts.Hard = hard
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := redisConfig(cfg, opts.Logger).Watch(running, url); err != nil {
			end(err)
			kill() // running tasks could not store their results
		}
	})
	err = runWorker(running, cfg, url, opts)
	end(nil)
	watch.Wait()
	if cause := context.Cause(running); errors.Is(cause, redisd.ErrGone) {
		return cause
	}
	return err
}

// runWorker implements RunWorker with the Redis at url.
func runWorker(ctx context.Context, cfg config.Config, url string, opts WorkerOptions) error {
	at := cfg
	at.Redis.URL = url
	client, err := Connect(ctx, at)
	if err != nil {
		return err
	}
	defer client.Close()
	system, err := NewSystem(cfg, client, opts.Logger)
	if err != nil {
		return err
	}
	defer system.Close()
	worker, err := system.NewWorker(opts.Name, opts.OfOrchestrator, opts.Ready)
	if err != nil {
		return err
	}
	defer context.AfterFunc(opts.Hard, worker.Kill)()
	// Draining tasks write records until the worker has stopped.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	var records sync.WaitGroup
	records.Go(func() { _ = system.Sites.Run(writing) }) // always nil
	defer records.Wait()
	defer stopWriting()
	defer system.runPool()()
	opts.Logger.InfoContext(ctx, "worker started", "worker", worker.Name())
	defer watchSystem(ctx, system, opts.Watch, func(cfg config.Config) { worker.SetConcurrency(cfg.Workers.Concurrency) })()
	if cfg.Workers.Metrics == "" {
		return worker.Run(ctx)
	}
	_, stop, err := system.ServeMetrics(ctx, "worker", metrics.Handler(system.Metrics, system.scrapes, RuntimeMetrics()))
	if err != nil {
		return err
	}
	defer stop() // draining tasks are counted
	return worker.Run(ctx)
}

// ServeMetrics serves h as /metrics of a component at workers.metrics_listen, with its /health and /ready, under the guard of the
// HTTP interface, until stop is called. It returns their URL.
func (s *System) ServeMetrics(ctx context.Context, component string, h http.Handler) (url string, stop func(), err error) {
	served, err := Guarded(s)
	if err != nil {
		return "", nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready, ended := make(chan string, 1), make(chan error, 1)
	served.Component, served.Listen, served.Metrics, served.Ready = component, s.cfg().Workers.Metrics, h, func(url string) { ready <- url }
	go func() { ended <- api.ServeMetrics(serving, served) }()
	select {
	case err := <-ended:
		cancel()
		return "", nil, err
	case url = <-ready:
	}
	return url, func() {
		cancel()
		if err := <-ended; err != nil {
			s.logger.WarnContext(ctx, "the metrics ended early", "err", err)
		}
	}, nil
}

// Connect returns a client of the Redis of the settings, or of the orchestrator that runs on the data directory. It does not
// start Redis. It migrates a store of an older release.
func Connect(ctx context.Context, cfg config.Config) (*tasks.Client, error) {
	url := cfg.Redis.URL
	if url == "" {
		var err error
		if url, err = redisd.Discover(ctx, cfg.DataDir); err != nil {
			return nil, err
		}
	}
	client, err := tasks.Connect(ctx, url)
	if redisd.RefusesLogin(err) {
		return nil, fmt.Errorf("%w; use an address with user and password, redis://user:password@host:port; for the Redis of muster start, use --data-dir instead of an address", err)
	}
	if err != nil {
		return nil, err
	}
	if err := NewStore(client, nil).Open(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}
