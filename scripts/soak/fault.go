//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// fault is an injected fault.
type fault struct {
	action string // kill, freeze, stop or cut
	target string
	for_   time.Duration // duration of a freeze
}

func (f fault) String() string {
	if f.for_ > 0 {
		return fmt.Sprintf("%s %s %s", f.action, f.target, f.for_)
	}
	return f.action + " " + f.target
}

// lasting are the processes that are not stopped in the second half of a run.
var lasting = []string{"orchestrator", "worker-1"}

// faults are the possible faults; frequent ones are repeated.
var faults = []fault{
	{action: "kill", target: "worker-1"}, {action: "kill", target: "worker-2"}, {action: "kill", target: "worker-2"},
	{action: "kill", target: "task worker"}, {action: "kill", target: "queue run"}, {action: "kill", target: "redis"},
	{action: "kill", target: "creator"}, {action: "kill", target: "validator"}, {action: "kill", target: "orchestrator"},
	{action: "stop", target: "orchestrator"},
	{action: "freeze", target: "worker-1"}, {action: "freeze", target: "worker-2"}, {action: "freeze", target: "task worker"},
	{action: "freeze", target: "queue run"}, {action: "freeze", target: "redis"}, {action: "freeze", target: "orchestrator"},
	{action: "freeze", target: "validator"},
	{action: "cut", target: "connections"}, {action: "cut", target: "connections"}, {action: "cut", target: "subscriptions"},
	{action: "cut", target: "pages"},
}

// pick chooses a fault. In the second half of a run it does not stop lasting processes.
func pick(r *rand.Rand, secondHalf bool) fault {
	for {
		f := faults[r.IntN(len(faults))]
		if f.action == "freeze" {
			f.for_ = time.Duration(2+r.IntN(14)) * time.Second
		}
		if !secondHalf || !f.ends(lasting) {
			return f
		}
	}
}

// ends reports whether f stops one of the processes.
func (f fault) ends(names []string) bool {
	return (f.action == "kill" || f.action == "stop") && slices.Contains(names, f.target)
}

// inflict injects a fault and returns a description of it.
func (s *system) inflict(ctx context.Context, f fault) string {
	var err error
	switch f.action {
	case "cut":
		err = s.cut(ctx, f.target)
	case "kill":
		err = s.signal(f.target, syscall.SIGKILL)
	case "stop":
		err = s.signal(f.target, syscall.SIGTERM)
	case "freeze":
		pid := s.pidOf(f.target)
		if err = s.signal(f.target, syscall.SIGSTOP); err == nil {
			s.frozen = append(s.frozen, pid)
			select {
			case <-time.After(f.for_):
			case <-ctx.Done():
			}
			s.revive()
		}
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", f, err)
	}
	return f.String()
}

// revive continues frozen processes.
func (s *system) revive() {
	for _, pid := range s.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // the process may have exited
	}
	s.frozen = nil
}

// pidOf returns the PID of a target, or 0.
func (s *system) pidOf(target string) int {
	switch target {
	case "creator":
		return s.agents[0].PID()
	case "validator":
		return s.agents[2].PID()
	}
	return s.pids()[target]
}

func (s *system) signal(target string, sig syscall.Signal) error {
	pid := s.pidOf(target)
	if pid <= 1 {
		return errors.New("process not running")
	}
	return syscall.Kill(pid, sig)
}

// cut closes connections, which their owners reopen.
func (s *system) cut(ctx context.Context, which string) error {
	switch which {
	case "pages":
		s.cutPages()
		return nil
	case "subscriptions":
		return s.client.Redis().Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()
	}
	return s.client.Redis().Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
}
