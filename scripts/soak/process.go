package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// process is a command that is started again whenever it ends, as a service manager does.
type process struct {
	name    string
	command func() *exec.Cmd
	log     *os.File

	mu      sync.Mutex // guards the rest
	cmd     *exec.Cmd  // nil while it does not run
	starts  int
	stopped bool
	done    chan struct{}
}

// startProcess starts a command. Its output goes to a file below dir.
func startProcess(dir, name string, command func() *exec.Cmd) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, command: command, log: log, done: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go p.supervise()
	return p, nil
}

func (p *process) start() error {
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches only this program
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd = cmd
	p.starts++
	return nil
}

var errStopped = errors.New("the process is to stay stopped")

func (p *process) supervise() {
	defer close(p.done)
	for {
		_ = p.cmd.Wait() // it was killed, or ended because another process was; its log says why
		p.mu.Lock()
		p.cmd = nil
		p.mu.Unlock()
		for {
			<-time.After(500 * time.Millisecond) // as a service manager does not spin
			err := p.start()
			if errors.Is(err, errStopped) {
				return
			}
			if err == nil {
				break
			}
			fmt.Fprintln(p.log, err)
		}
	}
}

// pid is that of the process now, or 0.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// signal sends a signal to the group of the process, if it runs.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig) // it may have ended just now
	}
}

// stop ends the process and waits: by SIGTERM, and after some time by SIGKILL.
func (p *process) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		p.signal(syscall.SIGKILL)
		<-p.done
	}
	_ = p.log.Close()
}
