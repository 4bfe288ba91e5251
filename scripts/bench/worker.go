package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"muster/tasks"
)

// startWorker runs a worker, and returns when it takes tasks. stop ends it.
func startWorker(ctx context.Context, c *tasks.Client, mux *tasks.Mux, cfg tasks.WorkerConfig) (_ *tasks.Worker, stop func() error, err error) {
	ready := make(chan struct{})
	cfg.Ready = func() { close(ready) }
	w, err := tasks.NewWorker(c, mux, cfg)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-ready:
		return w, func() error { cancel(); return <-ended }, nil
	case err := <-ended:
		cancel()
		return nil, nil, fmt.Errorf("start worker: %w", err)
	}
}

// childEnv makes this command a worker process: its role, its name and the URL of Redis.
const childEnv = "MUSTER_BENCH_CHILD"

// The roles of worker processes.
const (
	childNap  = "nap"
	childSite = "site"
)

// runChild is main of a worker process. It prints ready when it takes tasks.
func runChild(ctx context.Context, arg string) error {
	role, arg, _ := strings.Cut(arg, " ")
	name, url, _ := strings.Cut(arg, " ")
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	mux, queues := benchMux(), map[string]int(nil)
	if role == childSite {
		mux = tasks.NewMux()
		s, err := registerSites(c, mux, os.TempDir())
		if err != nil {
			return err
		}
		defer s.Close()
		queues = siteQueues()
	}
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Name: name, Queues: queues, Concurrency: 8, Ready: func() { fmt.Println("ready") }})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// children are the worker processes of a round.
type children struct {
	l       *lab
	role    string
	running []*exec.Cmd
	names   []string // of running
	started int
}

// startChildren starts n worker processes.
func startChildren(ctx context.Context, l *lab, role string, n int) (*children, error) {
	c := &children{l: l, role: role, running: make([]*exec.Cmd, n), names: make([]string, n)}
	for i := range n {
		if err := c.start(ctx, i); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// start starts a process in place i, and returns when it takes tasks.
func (c *children) start(ctx context.Context, i int) error {
	name := fmt.Sprint(c.role, c.started)
	c.started++
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+c.role+" "+name+" "+c.l.url())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a worker process: %w", err)
	}
	c.running[i], c.names[i] = cmd, name
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("start a worker process: got %q, want ready: %w", line, err)
	}
	return nil
}

// killAll kills the processes one after the other, kills times, and starts another for each. A kill comes at random in
// its share of the work: done returns how much of total is done. killed, if any, is called with the name of each.
func (c *children) killAll(ctx context.Context, kills, total int, done func() (int, error), killed func(name string) error) error {
	for kill := range kills {
		for until := (total*kill + rand.N(total)) / kills; ; {
			n, err := done()
			if err = errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("before kill %d: %w", kill+1, err)
			}
			if n >= until {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		i := kill % len(c.running)
		name := c.names[i]
		kill9(c.running[i])
		if killed != nil {
			if err := killed(name); err != nil {
				return err
			}
		}
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// close kills all processes.
func (c *children) close() {
	for _, cmd := range c.running {
		kill9(cmd)
	}
}

// kill9 ends a process by a signal that it cannot catch. It does nothing for nil.
func kill9(cmd *exec.Cmd) {
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}
