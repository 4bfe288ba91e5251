package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"muster/tasks"
)

// childEnv makes this command a worker process of a row that kills workers: its role, its name and the URL of Redis.
const childEnv = "MUSTER_BENCH_CHILD"

const (
	childNap  = "nap"
	childSite = "site"
)

// childRoles run the workers. They call ready once they take work.
var childRoles = map[string]func(ctx context.Context, c *tasks.Client, name string, ready func()) error{
	childNap:  napWorker,
	childSite: siteWorker,
}

// runChild is main of a child process.
func runChild(ctx context.Context, arg string) error {
	role, arg, _ := strings.Cut(arg, " ")
	name, url, _ := strings.Cut(arg, " ")
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	return childRoles[role](ctx, c, name, func() { fmt.Println("ready") })
}

// startChild starts a child process, and returns when it takes work.
func startChild(ctx context.Context, l *lab, role, name string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+name+" "+l.url())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		killChild(cmd)
		return nil, fmt.Errorf("start a worker: it printed %q, want ready: %w", line, err)
	}
	return cmd, nil
}

// killChild ends a child process by a signal that cannot be caught. It does nothing for nil.
func killChild(cmd *exec.Cmd) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
}
