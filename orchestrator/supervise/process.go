package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Config says what to run and how to keep it running.
type Config struct {
	// Name names the process in logs and names its pid file: letters, digits,
	// dots, dashes and underscores.
	Name string
	// Path is the executable. Defaults to this program's own.
	Path string
	// Args are the arguments after the program's name. Everybody on the machine
	// can read them: secrets belong in Env.
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Dir is the working folder. Defaults to this process's.
	Dir string
	// LogFile receives what the child writes to stdout and stderr, appended.
	// Several children may share one. Defaults to nowhere.
	LogFile string
	// MaxLog is the size from which what is in the log file is moved aside, to
	// LogFile+".1". Defaults to 32 MB.
	MaxLog int64
	// PIDDir is the folder of the pid file. Defaults to no pid file.
	PIDDir string
	// MinDelay and MaxDelay bound the wait before a restart, which doubles with
	// each death in a row. Default to 100 ms and 30 s.
	MinDelay, MaxDelay time.Duration
	// Steady is how long a child must run for its next death to count as the
	// first in a row. Defaults to MaxDelay.
	Steady time.Duration
	// Grace is how long a child may take to end after SIGTERM. Defaults to 10 s.
	Grace time.Duration
	// Recheck is when to check again which program the child is: a script may have
	// been replaced by another with exec. Defaults to 1 s.
	Recheck time.Duration
	// OnExit is called after each end of the child, before it is started again. It
	// runs in the supervisor: a restart waits for it, and it must not call Stop
	// or Kill. Optional.
	OnExit func(Exit)
	// Logger defaults to none.
	Logger *slog.Logger
}

// Exit says how a child ended.
type Exit struct {
	Name     string
	PID      int
	Err      error // nil for exit status 0
	Uptime   time.Duration
	Stopping bool // Stop or Kill was called; it is not started again
}

// Status is a look at a process.
type Status struct {
	Name     string
	PID      int // 0 while it is down
	Since    time.Time
	Restarts int
	LastExit error // how it last ended; nil if it never did, or with status 0
}

// Process is a child that is kept running until it is stopped.
type Process struct {
	cfg      Config
	owner    Identity
	stopping chan struct{} // closed when Stop or Kill is first called
	done     chan struct{} // closed when the child has ended and is not started again

	mu     sync.Mutex // guards the fields below
	halt   bool       // stopping is closed
	pid    int        // of the running child; set to 0 before it is reaped
	status Status
	// recheck looks at the running child a second time; nil without a PIDDir
	recheck *time.Timer
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (c Config) withDefaults() (Config, error) {
	if !nameRule.MatchString(c.Name) {
		return c, fmt.Errorf("process name %q: use letters, digits, dots, dashes and underscores", c.Name)
	}
	if c.Path == "" {
		path, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find our own executable: %w", err)
		}
		c.Path = path
	}
	if c.MaxLog <= 0 {
		c.MaxLog = 32 << 20
	}
	if c.MinDelay <= 0 {
		c.MinDelay = 100 * time.Millisecond
	}
	if c.MaxDelay <= 0 {
		c.MaxDelay = 30 * time.Second
	}
	c.MaxDelay = max(c.MaxDelay, c.MinDelay)
	if c.Steady <= 0 {
		c.Steady = c.MaxDelay
	}
	if c.Grace <= 0 {
		c.Grace = 10 * time.Second
	}
	if c.Recheck <= 0 {
		c.Recheck = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Start starts the child and keeps it running until Stop. The first start must
// succeed; later ones are tried again and again.
func Start(cfg Config) (*Process, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.PIDDir, filepath.Dir(cfg.LogFile)} {
		if dir == "" || dir == "." {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
		}
	}
	p := &Process{
		cfg:      cfg,
		stopping: make(chan struct{}),
		done:     make(chan struct{}),
		status:   Status{Name: cfg.Name},
	}
	// Where processes cannot be identified the pid file has no owner, and the
	// next run will leave everything alone.
	p.owner, _ = Self()

	first := make(chan error, 1)
	go p.supervise(first)
	if err := <-first; err != nil {
		return nil, err
	}
	return p, nil
}

// supervise is the goroutine that owns the child from first to last.
func (p *Process) supervise(first chan<- error) {
	defer close(p.done)
	if p.cfg.LogFile != "" {
		ended := make(chan struct{})
		var log sync.WaitGroup
		log.Go(func() { p.keepLogSmall(ended) })
		defer log.Wait()
		defer close(ended)
	}
	// The kernel signals the child when this thread ends: keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	delay := p.cfg.MinDelay
	for starts := 0; ; starts++ {
		cmd, err := p.spawn(starts)
		if starts == 0 {
			first <- err
			if err != nil {
				return
			}
		}
		var uptime time.Duration
		if err == nil {
			exit := p.await(cmd)
			uptime = exit.Uptime
			if exit.Stopping {
				return
			}
			p.cfg.Logger.Warn("process died, restarting it", "name", p.cfg.Name, "pid", exit.PID,
				"err", exit.Err, "uptime", exit.Uptime.Round(time.Millisecond), "delay", delay)
		} else {
			p.cfg.Logger.Error("process does not start", "name", p.cfg.Name, "err", err, "delay", delay)
		}
		if uptime >= p.cfg.Steady {
			delay = p.cfg.MinDelay
		}
		select {
		case <-time.After(delay):
		case <-p.stopping:
			return
		}
		delay = min(2*delay, p.cfg.MaxDelay)
	}
}

// spawn starts the child once. It does not start one when p is stopping.
func (p *Process) spawn(starts int) (*exec.Cmd, error) {
	cmd := exec.Command(p.cfg.Path, p.cfg.Args...)
	cmd.Env = append(os.Environ(), p.cfg.Env...)
	cmd.Dir = p.cfg.Dir
	ownGroup(cmd, sigTerm)

	if p.cfg.LogFile != "" {
		log, err := os.OpenFile(p.cfg.LogFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", p.cfg.Name, err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halt {
		return nil, fmt.Errorf("start %s: %w", p.cfg.Name, context.Canceled)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.cfg.Name, err)
	}
	p.pid = cmd.Process.Pid
	p.status.PID, p.status.Since, p.status.Restarts = p.pid, time.Now(), starts

	if p.cfg.PIDDir != "" {
		id, err := Identify(p.pid)
		if err == nil {
			err = p.writePIDFile(id)
		}
		if err != nil {
			// It runs; only the next run's search for leftovers will miss it.
			p.cfg.Logger.Warn("no pid file", "name", p.cfg.Name, "pid", p.pid, "err", err)
		}
		p.recheck = time.AfterFunc(p.cfg.Recheck, func() { p.identifyAgain(id) })
	}
	p.cfg.Logger.Debug("process started", "name", p.cfg.Name, "pid", p.pid, "starts", starts+1)
	return cmd, nil
}

func (p *Process) writePIDFile(id Identity) error {
	return writePIDFile(pidPath(p.cfg.PIDDir, p.cfg.Name), pidFile{Name: p.cfg.Name, Process: id, Owner: p.owner})
}

// identifyAgain corrects the pid file of a child that has since become another
// program, as scripts do that set something up and then exec.
func (p *Process) identifyAgain(then Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 || p.pid != then.PID {
		return
	}
	now, err := Identify(p.pid)
	if err != nil || now == then {
		return
	}
	if err := p.writePIDFile(now); err != nil {
		p.cfg.Logger.Warn("no pid file", "name", p.cfg.Name, "pid", p.pid, "err", err)
	}
}

// await waits for the end of the child, ends what is left of its group, and
// calls OnExit.
func (p *Process) await(cmd *exec.Cmd) Exit {
	pid := cmd.Process.Pid
	awaitExit(pid)

	p.mu.Lock()
	// Grandchildren that outlive it would run on. The pid is still
	// reserved: the child is not reaped yet.
	_ = signalGroup(pid, sigKill)
	p.pid = 0
	if p.recheck != nil {
		p.recheck.Stop()
	}
	p.mu.Unlock()

	err := cmd.Wait()
	if p.cfg.PIDDir != "" {
		if err := os.Remove(pidPath(p.cfg.PIDDir, p.cfg.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.cfg.Logger.Warn("pid file stays", "name", p.cfg.Name, "err", err)
		}
	}

	p.mu.Lock()
	exit := Exit{Name: p.cfg.Name, PID: pid, Err: err, Uptime: time.Since(p.status.Since), Stopping: p.halt}
	p.status.PID, p.status.LastExit = 0, err
	p.mu.Unlock()

	if p.cfg.OnExit != nil {
		p.cfg.OnExit(exit)
	}
	return exit
}

// Stop ends the child and its supervision: SIGTERM to its process group, and
// SIGKILL when it is still there after the grace period or when ctx is done. It
// returns when the child is gone. It may be called again and concurrently.
func (p *Process) Stop(ctx context.Context) error {
	p.beginStop(sigTerm)

	grace := time.NewTimer(p.cfg.Grace)
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	p.cfg.Logger.Warn("process did not end in time, killing it", "name", p.cfg.Name)
	return p.Kill()
}

// Kill ends the child and its supervision at once.
func (p *Process) Kill() error {
	p.beginStop(sigKill)
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("stop %s: it does not die", p.cfg.Name)
	}
}

// Restart kills the child if it has this pid, and starts it again.
func (p *Process) Restart(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 && p.pid == pid {
		_ = signalGroup(pid, sigKill)
	}
}

func (p *Process) beginStop(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.halt {
		p.halt = true
		close(p.stopping)
	}
	if p.pid != 0 {
		_ = signalGroup(p.pid, sig)
	}
}

// Done is closed when the child has ended and is not started again.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns the state of the process.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}
