package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a running program with its child processes.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader // standard output
	stdin  io.WriteCloser
	errs   *bytes.Buffer
	exited chan struct{}
}

// start starts a command in a separate process group. as is the user, or nil.
func start(as *syscall.Credential, env []string, command ...string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), errs: new(bytes.Buffer), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// With cmd.StdoutPipe, Wait would close the pipe while lines are being read.
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.stdin, p.lines = w, stdin, bufio.NewReader(out)
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	// Unread output must not block the process, and the group may outlive its leader.
	p.cmd.WaitDelay = time.Second
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // the exit status is not needed
	}()
	return p, nil
}

// line returns the next line of standard output.
func (p *process) line() (string, error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s exited: %w\n%s", filepath.Base(p.cmd.Path), err, bytes.TrimSpace(p.errs.Bytes()))
	}
	return strings.TrimSpace(line), nil
}

// await reads lines until one equals want. It kills the process on a timeout.
func (p *process) await(want string, limit time.Duration) error {
	timer := time.AfterFunc(limit, p.kill)
	defer timer.Stop()
	for {
		line, err := p.line()
		if err != nil || line == want {
			return err
		}
	}
}

// kill kills the process and its children with SIGKILL.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have exited
	<-p.exited
}

// interrupt sends SIGINT, then kills the process after a timeout.
func (p *process) interrupt(limit time.Duration) {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have exited
	select {
	case <-p.exited:
	case <-time.After(limit):
	}
	p.kill()
}

// cpu returns the CPU time of the process and its children.
func (p *process) cpu() (time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var stats []stat
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the process has exited
		}
		s, err := parseStat(string(raw))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		stats = append(stats, s)
	}
	return cpuOfTree(stats, p.cmd.Process.Pid), nil
}

// stat contains fields of /proc/PID/stat.
type stat struct {
	pid, parent int
	cpu         time.Duration // includes exited children
}

const tick = time.Second / 100 // the unit of the times in /proc, on every Linux that Go runs on

func parseStat(line string) (stat, error) {
	// The program name may contain spaces and parentheses.
	begin, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if begin < 0 || end < begin {
		return stat{}, fmt.Errorf("no name in %q", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 15 {
		return stat{}, fmt.Errorf("%d fields after the name in %q", len(fields), line)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:begin]))
	parent, err1 := strconv.Atoi(fields[1])
	s := stat{pid: pid, parent: parent}
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err2 := strconv.Atoi(field)
		err1 = errors.Join(err1, err2)
		s.cpu += time.Duration(ticks) * tick
	}
	return s, errors.Join(err, err1)
}

// cpuOfTree returns the CPU time of a process and all of its descendants.
func cpuOfTree(stats []stat, root int) time.Duration {
	var sum time.Duration
	for _, s := range stats {
		if s.pid == root {
			sum += s.cpu
		} else if s.parent == root {
			sum += cpuOfTree(stats, s.pid)
		}
	}
	return sum
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
