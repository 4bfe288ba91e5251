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

// fault is what happens to the system in a minute.
type fault struct {
	what   string // kill, freeze, stop or cut
	target string
	for_   time.Duration // of a freeze
}

func (f fault) String() string {
	if f.for_ > 0 {
		return fmt.Sprintf("%s %s %s", f.what, f.target, f.for_)
	}
	return f.what + " " + f.target
}

// lasting are the processes that are not ended in the second half of a run.
var lasting = []string{"orchestrator", "worker-1"}

// faults are all of them, as often as they are likely.
var faults = []fault{
	{what: "kill", target: "worker-1"}, {what: "kill", target: "worker-2"}, {what: "kill", target: "worker-2"},
	{what: "kill", target: "task worker"}, {what: "kill", target: "queue run"}, {what: "kill", target: "redis"},
	{what: "kill", target: "creator"}, {what: "kill", target: "validator"}, {what: "kill", target: "orchestrator"},
	{what: "stop", target: "orchestrator"},
	{what: "freeze", target: "worker-1"}, {what: "freeze", target: "worker-2"}, {what: "freeze", target: "task worker"},
	{what: "freeze", target: "queue run"}, {what: "freeze", target: "redis"}, {what: "freeze", target: "orchestrator"},
	{what: "freeze", target: "validator"},
	{what: "cut", target: "connections"}, {what: "cut", target: "connections"}, {what: "cut", target: "subscriptions"},
	{what: "cut", target: "pages"},
}

// pick chooses a fault. In the second half of a run what is to last is not ended.
func pick(r *rand.Rand, secondHalf bool) fault {
	for {
		f := faults[r.IntN(len(faults))]
		if f.what == "freeze" {
			f.for_ = time.Duration(2+r.IntN(14)) * time.Second
		}
		if !secondHalf || !f.ends(lasting) {
			return f
		}
	}
}

// ends reports whether f ends one of the processes.
func (f fault) ends(names []string) bool {
	return (f.what == "kill" || f.what == "stop") && slices.Contains(names, f.target)
}

// inflict does it. It returns what was done.
func (s *system) inflict(ctx context.Context, f fault) string {
	var err error
	switch f.what {
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

// revive lets what is frozen continue.
func (s *system) revive() {
	for _, pid := range s.frozen {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been ended meanwhile
	}
	s.frozen = nil
}

// pidOf is the pid of a target now, or 0.
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
		return errors.New("it does not run")
	}
	return syscall.Kill(pid, sig)
}

// cut ends connections, which their owners make again.
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
