// Package supervise keeps child processes running and stops all of them.
//
// A [Process] is a child that is restarted with exponential backoff when it exits, and stopped together with its process
// group. A PID file identifies each child and its supervisor by PID, start time and executable. After a crash, [CleanStale]
// in the next run stops exactly the leftover children, even if PIDs have been reused.
//
//	starting ──▶ up ──exits──▶ waiting ──delay──▶ up …
//	              └────────── Stop: signal, grace, kill ──▶ stopped
//
// On Linux the kernel also signals the children when their supervisor exits.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Config describes a child process and its supervision.
type Config struct {
	// Name is the name in logs and of the PID file: letters, digits, dots, dashes and underscores.
	Name string
	// Path is the executable. Default: the executable of this process.
	Path string
	// Args are the arguments after the program name. They are visible to all users: pass secrets in Env.
	Args []string
	// Env is appended to the environment of this process.
	Env []string
	// Dir is the working directory. Default: the working directory of this process.
	Dir string
	// LogFile is the file to which stdout and stderr are appended. Children may share it. Default: output is discarded.
	LogFile string
	// PIDDir is the directory of the PID file. Default: no PID file.
	PIDDir string
	// MinDelay and MaxDelay bound the delay before a restart, which doubles with each consecutive exit. Defaults: 100 ms and
	// 30 s.
	MinDelay, MaxDelay time.Duration
	// Steady is the uptime after which the delay is reset to MinDelay. Default: MaxDelay.
	Steady time.Duration
	// Grace is the time that a child has to exit after SIGTERM. Default: 10 s.
	Grace time.Duration
	// OnExit is called after each exit of the child, before a restart. It blocks the supervisor and must not call Stop or
	// Kill. Optional.
	OnExit func(Exit)
	// Logger is the logger. Default: no logging.
	Logger *slog.Logger
}

// Exit describes the exit of a child.
type Exit struct {
	Name     string
	PID      int
	Err      error // nil for exit status 0
	Uptime   time.Duration
	Stopping bool // Stop or Kill was called, so there is no restart
}

// Status is a snapshot of the state of a process.
type Status struct {
	Name     string
	PID      int // 0 while it is down
	Since    time.Time
	Restarts int
	LastExit error // error of the last exit; nil for exit status 0, or before the first exit
}

// Process is a child that is kept running until it is stopped.
type Process struct {
	cfg      Config
	owner    Identity
	stopping chan struct{} // closed by the first call of Stop or Kill
	done     chan struct{} // closed when the child has exited and will not be restarted

	mu     sync.Mutex // guards the fields below
	halt   bool       // stopping is closed
	pid    int        // PID of the running child; 0 before it is reaped
	status Status
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

func (c Config) withDefaults() (Config, error) {
	if !nameRule.MatchString(c.Name) {
		return c, fmt.Errorf("invalid process name %q: use letters, digits, dots, dashes and underscores", c.Name)
	}
	if c.Path == "" {
		path, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find the executable of this process: %w", err)
		}
		c.Path = path
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Start starts the child and restarts it until Stop. It returns an error if the first start fails; later starts are retried.
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
	// If processes cannot be identified on this system, the PID file has no owner and CleanStale ignores it.
	p.owner, _ = Self()

	first := make(chan error, 1)
	go p.supervise(first)
	if err := <-first; err != nil {
		return nil, err
	}
	return p, nil
}

// supervise is the goroutine that owns the child.
func (p *Process) supervise(first chan<- error) {
	defer close(p.done)
	// The kernel signals the child when this thread exits, so keep the thread.
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
			p.cfg.Logger.Warn("process exited, restarting it", "name", p.cfg.Name, "pid", exit.PID,
				"err", exit.Err, "uptime", exit.Uptime.Round(time.Millisecond), "delay", delay)
		} else {
			p.cfg.Logger.Error("cannot start process", "name", p.cfg.Name, "err", err, "delay", delay)
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

// spawn starts the child once, unless p is stopping.
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
			err = writePIDFile(pidPath(p.cfg.PIDDir, p.cfg.Name), pidFile{Name: p.cfg.Name, Process: id, Owner: p.owner})
		}
		if err != nil {
			// The child runs, but CleanStale in the next run will miss it.
			p.cfg.Logger.Warn("cannot write PID file", "name", p.cfg.Name, "pid", p.pid, "err", err)
		}
	}
	p.cfg.Logger.Debug("process started", "name", p.cfg.Name, "pid", p.pid, "starts", starts+1)
	return cmd, nil
}

// await waits until the child exits, kills the rest of its process group and calls OnExit.
func (p *Process) await(cmd *exec.Cmd) Exit {
	pid := cmd.Process.Pid
	awaitExit(pid)

	p.mu.Lock()
	// Kill grandchildren that outlive the child. The PID is still reserved, because the child is not reaped yet.
	_ = signalGroup(pid, sigKill)
	p.pid = 0
	p.mu.Unlock()

	err := cmd.Wait()
	if p.cfg.PIDDir != "" {
		if err := os.Remove(pidPath(p.cfg.PIDDir, p.cfg.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.cfg.Logger.Warn("cannot remove PID file", "name", p.cfg.Name, "err", err)
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

// Stop stops the child and its supervision: SIGTERM to its process group, then SIGKILL after the grace period or when ctx is
// done. It returns when the child has exited. It may be called repeatedly and concurrently.
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
	p.cfg.Logger.Warn("process did not exit in time, killing it", "name", p.cfg.Name)
	return p.Kill()
}

// Kill kills the child immediately and stops its supervision.
func (p *Process) Kill() error {
	p.beginStop(sigKill)
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("stop %s: process still running after SIGKILL", p.cfg.Name)
	}
}

// Restart kills the child if it has this PID. The supervisor starts it again.
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

// Done is closed when the child has exited and will not be restarted.
func (p *Process) Done() <-chan struct{} { return p.done }

// Status returns the state of the process.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// LogTail returns at most the last max bytes of a log file, starting at a line. It returns "" if the file does not exist.
func LogTail(path string, max int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := info.Size() - max
	if from > 0 {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			return ""
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, max))
	if err != nil {
		return ""
	}
	if from > 0 {
		for i, c := range b {
			if c == '\n' {
				return string(b[i+1:])
			}
		}
	}
	return string(b)
}
