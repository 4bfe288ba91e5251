//go:build unix

// Package respawn keeps processes running for tests that kill and freeze them.
package respawn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// A Process is a command that is restarted whenever it exits, like a service. Its methods are safe for concurrent use.
type Process struct {
	Name    string
	Out     string // file with the standard output of all runs
	Log     string // file with the standard error of all runs
	command func() *exec.Cmd
	out     *os.File
	log     *os.File

	mu      sync.Mutex // guards the fields below
	cmd     *exec.Cmd  // nil while it does not run
	starts  int
	stopped bool
	done    chan struct{}
}

// Start starts a command and returns when it is running. Its output is appended to NAME.out and NAME.log in dir.
func Start(dir, name string, command func() *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, Out: filepath.Join(dir, name+".out"), Log: filepath.Join(dir, name+".log"), command: command, done: make(chan struct{})}
	var err error
	if p.out, err = open(p.Out); err != nil {
		return nil, err
	}
	if p.log, err = open(p.Log); err == nil {
		err = p.start()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	go p.supervise()
	return p, nil
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

func (p *Process) close() {
	_ = p.out.Close()
	_ = p.log.Close() // nil if it is not open
}

func (p *Process) start() error {
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = p.out, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C signals only this program
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.cmd = cmd
	p.starts++
	return nil
}

// supervise restarts the process until it is stopped.
func (p *Process) supervise() {
	defer close(p.done)
	for {
		p.mu.Lock()
		cmd, stopped := p.cmd, p.stopped
		p.mu.Unlock()
		if cmd != nil {
			_ = cmd.Wait() // the log contains the reason of the exit
			p.mu.Lock()
			p.cmd, stopped = nil, p.stopped
			p.mu.Unlock()
		}
		if stopped {
			return
		}
		<-time.After(100 * time.Millisecond)
		if err := p.start(); err != nil {
			fmt.Fprintln(p.log, err)
		}
	}
}

// PID returns the ID of the running process, or 0.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Starts returns the number of starts of the process.
func (p *Process) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts
}

// Signal sends a signal to the process group and reports whether the process was running.
func (p *Process) Signal(sig syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && syscall.Kill(-p.cmd.Process.Pid, sig) == nil
}

// Stop stops the process permanently, with SIGTERM and, after grace, with SIGKILL.
func (p *Process) Stop(grace time.Duration) {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
	p.close()
}
