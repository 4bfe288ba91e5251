package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/config"
	"muster/orchestrator/redisd"
	"muster/orchestrator/supervise"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// workersUp bounds how long workers may take until they answer.
const workersUp = 20 * time.Second

// answerWithin is how long to wait for the workers of other processes before starting our own.
const answerWithin = 2 * time.Second

// Workers are those that an orchestrator has started or uses. Its methods may
// be called concurrently.
type Workers struct {
	system   *System
	opts     Options
	redisURL string
	scope    *scope // stops them

	mu      sync.Mutex    // guards the fields below
	started bool          // here, or others' are used
	own     bool          // they were started here
	local   *tasks.Worker // of this process; nil if none
	file    string        // of the settings that worker processes watch; "" if there are none
	writing bool          // records are written here
}

// Start starts workers, in this process or as supervised children, and returns
// when all of them take tasks. It does nothing when they run, or, with
// Options.Reuse, when others do. From then on this process writes records, also
// of pages that workers on other machines fetch.
func (w *Workers) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return nil
	}
	w.writeRecords(ctx)
	if w.opts.Reuse {
		n, err := w.answering(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			w.opts.Logger.InfoContext(ctx, "using the workers that run", "workers", n)
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

// writeRecords writes the records of scrapes until the scope ends, after the workers.
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

// answering returns how many workers answer a ping. A worker that was killed remains listed for a while.
func (w *Workers) answering(ctx context.Context) (int, error) {
	if live, err := w.system.Client.Workers(ctx); err == nil && !slices.ContainsFunc(live, func(t tasktype.Worker) bool { return !isGone(t) }) {
		return 0, nil
	}
	pongs, err := w.system.Client.PingWorkers(ctx, answerWithin)
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

// isGone reports whether a listed worker was of a process on this machine that no longer exists.
func isGone(w tasktype.Worker) bool {
	if host, err := os.Hostname(); err != nil || w.Host != host || w.PID <= 0 {
		return false
	}
	p, err := os.FindProcess(w.PID)
	return err == nil && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// expireGone makes the tasks of workers on this machine whose processes no longer exist runnable at once. Only workers of
// this machine's processes must use the Redis.
func (s *System) expireGone(ctx context.Context) {
	live, err := s.Client.Workers(ctx)
	if err != nil {
		s.logger.WarnContext(ctx, "could not look for workers that were killed", "err", err)
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
	worker, err := w.system.NewWorker("", func() { close(ready) })
	if err != nil {
		return err
	}
	w.local = worker
	// The end of ctx must not end the tasks: their callers return first, and
	// then the scope drains them.
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
		return cmp.Or(err, errors.New("the worker ended at once"))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(workersUp):
		return fmt.Errorf("the worker takes no work after %s", workersUp)
	}
}

// startProcesses runs workers as children of this process.
func (w *Workers) startProcesses(ctx context.Context) error {
	settings := w.system.Config()
	settings.Redis.URL, settings.Redis.Mode = w.redisURL, string(redisd.External)
	file := workerSettings(settings, os.Getpid())
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := settings.WriteReloaded(file); err != nil {
		return err
	}
	w.file = file
	w.scope.add("settings of workers", func(context.Context) error { return os.Remove(file) })
	var names []string
	var children []*supervise.Process
	w.scope.add("workers", func(hard context.Context) error {
		var stops errgroup.Group
		for _, child := range children {
			stops.Go(func() error {
				defer context.AfterFunc(hard, func() { _ = child.Kill() })() // Stop returns how it ended
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
		if first := w.system.cfg().Workers.Metrics; first != "" {
			address, err := nthAddress(first, i)
			if err != nil {
				return fmt.Errorf("workers.metrics_listen: %w", err)
			}
			args = append(args, "--metrics-listen", address)
		}
		child, err := supervise.Start(supervise.Config{
			Name: name,
			Args: args,
			// The settings may hold passwords, and arguments are public.
			Env:     settings.Environ(file),
			LogFile: w.system.cfg().WorkerLog(),
			PIDDir:  runDir(w.system.Config()),
			Grace:   w.system.cfg().Shutdown.Drain + 5*time.Second,
			OnExit: func(e supervise.Exit) {
				if e.Stopping {
					return
				}
				w.opts.Logger.WarnContext(ctx, "a worker died; other workers continue its tasks", "worker", name, "pid", e.PID, "err", e.Err)
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

// nthAddress returns an address to listen at with n added to its port. Port 0 stays: it is any free one.
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

// workerSettings is the file with the settings of the worker processes of an
// orchestrator.
func workerSettings(cfg config.Config, owner int) string {
	return filepath.Join(runDir(cfg), fmt.Sprintf("settings.%d.yaml", owner))
}

// workerName is what the fleet calls a worker process of the orchestrator with
// the given pid on this machine.
func workerName(owner int, process string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%s.%d.%s", host, owner, process)
}

// expireLeases makes the tasks of a dead worker runnable at once.
func (s *System) expireLeases(worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := tasks.ExpireLeases(ctx, s.Client, worker); err != nil {
		// The other workers notice it when its leases run out.
		s.logger.WarnContext(ctx, "could not take over from a dead worker at once", "worker", worker, "err", err)
	}
}

// await waits until all of the workers called names answer.
func (w *Workers) await(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, workersUp, fmt.Errorf(
		"not all of the %d worker processes answer after %s; see %s", len(names), workersUp, w.system.cfg().WorkerLog()))
	defer cancel()
	for {
		live, err := w.system.Client.Workers(ctx)
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
	n, err := w.answering(ctx)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return n > 0 && !w.started, nil
}

// alive returns an error that says what to do when no workers run. It returns
// nil when Redis does not answer.
func (w *Workers) alive(ctx context.Context) error {
	w.mu.Lock()
	own := w.own
	w.mu.Unlock()
	if own { // they are supervised, or in this process
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*w.system.cfg().Workers.PingTimeout)
	defer cancel()
	live, err := w.system.Client.Workers(ctx)
	if err == nil && len(live) == 0 {
		// While Redis takes no writes, and for a moment after that, workers are not listed: ask them.
		var pongs []tasktype.Pong
		if pongs, err = w.system.Client.PingWorkers(ctx, w.system.cfg().Workers.PingTimeout); err == nil && len(pongs) == 0 {
			return errors.New("no workers are running; start one with muster worker or muster start")
		}
	}
	if err != nil {
		// Redis is down or refuses writes: others report that, and it mostly passes.
		w.opts.Logger.DebugContext(ctx, "cannot ask for the workers", "err", err)
	}
	return nil
}

// reload passes settings on to the workers that it has started.
func (w *Workers) reload(cfg config.Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.local != nil {
		w.local.SetConcurrency(cfg.Workers.Concurrency)
	}
	if w.file != "" {
		return cfg.WriteReloaded(w.file)
	}
	return nil
}
