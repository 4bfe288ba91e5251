package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

// interruption is the error of a command that Ctrl-C or SIGTERM stopped: the state of
// its work, and how to resume it.
type interruption string

func (i interruption) Error() string { return "interrupted: " + string(i) }

func (interruption) Unwrap() error { return errInterrupted }

// errStopped is the result of a server that SIGTERM stopped.
var errStopped = errors.New("stopped")

// server returns the action of a command that runs until it is stopped: after SIGTERM it succeeds, without a message.
func server(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		err := action(c)
		if errors.Is(context.Cause(c.Context), errTerminated) && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted)) {
			return errStopped
		}
		return err
	}
}

// requires returns a check of a command that accepts the flags called names only with the flag called with.
func requires(with string, names ...string) cli.BeforeFunc {
	return func(c *cli.Context) error {
		for _, name := range names {
			if c.IsSet(name) && !c.IsSet(with) {
				return usageError{fmt.Errorf("--%s requires --%s", name, with)}
			}
		}
		return nil
	}
}

// withState adds the state of the work to the error of an interrupted command.
// It returns other errors as they are.
func withState(ctx context.Context, err error, format string, args ...any) error {
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		return err
	}
	return interruption(fmt.Sprintf(format, args...))
}

// withJobState is withState for a command that waits for jobs of a kind, "jobs" or "scrapes", and may have done their work
// itself. The command again continues them.
func withJobState(ctx context.Context, o *orchestrator.Orchestrator, err error, kind string, ids []string, again string) error {
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		return err
	}
	queryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	elsewhere, queryErr := o.Workers.Elsewhere(queryCtx)
	switch {
	case len(ids) == 0:
		return withState(ctx, err, "nothing was sent; begin again with %s", again)
	case queryErr == nil && elsewhere:
		show := map[string]string{"jobs": "status", "scrapes": "get"}[kind]
		return withState(ctx, err, "the work continues in the background; wait for it with muster %[1]s %[2]s ID --wait, or end it with muster %[1]s cancel ID; %[1]s: %[3]s", kind, show, strings.Join(ids, ", "))
	}
	return withState(ctx, err, "finished work is kept, and nothing resumes automatically; resume with %s, or with muster start", again)
}
