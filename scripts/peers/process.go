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

// process is a running program with its children.
type process struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader // standard output
	stdin  io.WriteCloser
	errs   *bytes.Buffer
	exited chan struct{}
}

// start runs a command in a process group of its own. as is the user, or nil.
func start(as *syscall.Credential, env []string, command ...string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...), errs: new(bytes.Buffer), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// An own pipe, so that Wait does not close it while lines are being read.
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
	// Output that is not read must not stop the process; and the group may outlive its first process.
	p.cmd.WaitDelay = time.Second
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended does not matter
	}()
	return p, nil
}

// line is the next line of standard output.
func (p *process) line() (string, error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s ended: %w\n%s", filepath.Base(p.cmd.Path), err, bytes.TrimSpace(p.errs.Bytes()))
	}
	return strings.TrimSpace(line), nil
}

// await reads lines until one is want. A process that does not print it in time is killed.
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

// kill ends the process and its children by a signal that they cannot catch.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.exited
}

// interrupt asks the process to end, and kills it if it does not in time.
func (p *process) interrupt(limit time.Duration) {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(limit):
	}
	p.kill()
}

// cpu is the CPU time of the process and its children so far.
func (p *process) cpu() (time.Duration, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var stats []stat
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		s, err := parseStat(string(raw))
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		stats = append(stats, s)
	}
	return cpuOfTree(stats, p.cmd.Process.Pid), nil
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	pid, parent int
	cpu         time.Duration // of it, and of its children that have ended
}

const tick = time.Second / 100 // the unit of the times in /proc, on every Linux that Go runs on

func parseStat(line string) (stat, error) {
	// The name of the program may have spaces and parentheses.
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

// cpuOfTree is the CPU time of a process and of all below it.
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

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
