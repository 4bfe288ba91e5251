package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/orchestrator/redisd"
	"muster/orchestrator/supervise"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// workersUp bounds how long workers may take until they answer.
const workersUp = 20 * time.Second

// answerWithin is how long the workers of others have to answer before there are to be more.
const answerWithin = 2 * time.Second

// StartWorkers brings workers up, in this process or as supervised children,
// and returns when one of them answers. It does nothing when they are up, or,
// with Options.Reuse, when somebody else's are. From then on this process writes
// records, also of pages that workers on other machines fetch.
func (o *Orchestrator) StartWorkers(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.workers {
		return nil
	}
	o.writeRecords(ctx)
	if o.opts.Reuse {
		n, err := o.answering(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			o.opts.Logger.Info("using the workers that run", "workers", n)
			o.workers = true
			return nil
		}
	}
	start := o.startInProcess
	if o.cfg.Workers.Processes > 0 {
		start = o.startProcesses
	}
	if err := start(ctx); err != nil {
		return fmt.Errorf("start workers: %w", err)
	}
	o.workers, o.own = true, true
	return nil
}

// writeRecords writes the records of scrapes until the scope ends, after the workers.
func (o *Orchestrator) writeRecords(ctx context.Context) {
	if o.writing {
		return
	}
	o.writing = true
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- o.Sites.Run(running) }()
	o.scope.add("records", func(context.Context) error {
		stop()
		return <-ended
	})
}

// answering counts the workers that answer. One that was killed is listed for
// a while: only who answers is there.
func (o *Orchestrator) answering(ctx context.Context) (int, error) {
	if live, err := o.Client.Workers(ctx); err == nil && len(live) == 0 {
		return 0, nil
	}
	pongs, err := o.Client.PingWorkers(ctx, answerWithin)
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

// startInProcess runs a worker in this process.
func (o *Orchestrator) startInProcess(ctx context.Context) error {
	ready := make(chan struct{})
	worker, err := o.NewWorker("", func() { close(ready) })
	if err != nil {
		return err
	}
	o.worker = worker
	// The end of ctx must not end the tasks: whoever waits for them returns
	// first, and then the scope drains them.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	o.scope.add("workers", func(hard context.Context) error {
		defer context.AfterFunc(hard, worker.Kill)()
		stop()
		return <-ended
	})
	select {
	case <-ready:
		return nil
	case err := <-ended:
		ended <- err // for the scope
		return cmpErr(err, errors.New("the worker ended at once"))
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(workersUp):
		return fmt.Errorf("the worker takes no work after %s", workersUp)
	}
}

// startProcesses runs workers as children of this process.
func (o *Orchestrator) startProcesses(ctx context.Context) error {
	settings := o.cfg
	settings.Redis.URL, settings.Redis.Mode = o.redis.URL(), string(redisd.External)
	var names []string
	var children []*supervise.Process
	o.scope.add("workers", func(hard context.Context) error {
		var stops errgroup.Group
		for _, child := range children {
			stops.Go(func() error {
				defer context.AfterFunc(hard, func() { _ = child.Kill() })() // Stop tells how it ended
				return child.Stop(context.WithoutCancel(hard))
			})
		}
		return stops.Wait()
	})
	for i := range o.cfg.Workers.Processes {
		name := fmt.Sprintf("worker-%d", i+1)
		fleet := workerName(os.Getpid(), name)
		names = append(names, fleet)
		child, err := supervise.Start(supervise.Config{
			Name: name,
			Args: []string{"worker", "--name", fleet},
			// The settings may hold passwords, and arguments are public.
			Env:     settings.Environ(),
			LogFile: o.cfg.WorkerLog(),
			PIDDir:  runDir(o.cfg),
			Grace:   o.cfg.Shutdown.Drain + 5*time.Second,
			OnExit: func(e supervise.Exit) {
				if e.Stopping {
					return
				}
				o.opts.Logger.Warn("a worker died, its work goes on elsewhere", "worker", name, "pid", e.PID, "err", e.Err)
				o.bury(fleet)
			},
			Logger: o.opts.Logger,
		})
		if err != nil {
			return err
		}
		children = append(children, child)
	}
	return o.awaitWorkers(ctx, names)
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

// bury makes what a dead worker was at runnable again at once.
func (o *Orchestrator) bury(worker string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := tasks.ExpireLeases(ctx, o.Client, worker); err != nil {
		// The other workers find it by its silence.
		o.opts.Logger.Warn("could not take over from a dead worker at once", "worker", worker, "err", err)
	}
}

// awaitWorkers waits until all of the workers called names answer.
func (o *Orchestrator) awaitWorkers(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, workersUp, fmt.Errorf(
		"not all of the %d worker processes answer after %s; see %s", len(names), workersUp, o.cfg.WorkerLog()))
	defer cancel()
	for {
		live, err := o.Client.Workers(ctx)
		if err == nil {
			up := map[string]bool{}
			for _, w := range live {
				up[w.Name] = true
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

// WorkersElsewhere tells whether others run workers on this Redis.
func (o *Orchestrator) WorkersElsewhere(ctx context.Context) (bool, error) {
	n, err := o.answering(ctx)
	if err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return n > 0 && !o.workers, nil
}

// alive returns an error when no worker runs, in words that say what to do.
func (o *Orchestrator) alive(ctx context.Context) error {
	o.mu.Lock()
	own := o.own
	o.mu.Unlock()
	if own { // ours are supervised or in this process, and on their way
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*o.cfg.Workers.PingTimeout)
	defer cancel()
	live, err := o.Client.Workers(ctx)
	if err == nil && len(live) == 0 {
		// While Redis takes no writes, and for a moment after that, workers are not listed: ask who is there.
		var pongs []tasktype.Pong
		if pongs, err = o.Client.PingWorkers(ctx, o.cfg.Workers.PingTimeout); err == nil && len(pongs) == 0 {
			return errors.New("no workers are running; start one with muster worker or muster start")
		}
	}
	if err != nil {
		// Redis is away or takes no writes, which is another trouble, and mostly passes.
		o.opts.Logger.Debug("cannot ask for the workers", "err", err)
	}
	return nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
