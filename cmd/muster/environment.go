package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"muster/orchestrator/monitor"
)

// environment is the part of the process that commands use.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string        // KEY=value
	hard           context.Context // done at the second signal: stop without waiting for tasks
	level          *slog.LevelVar  // of the loggers of the command; nil where it does not change
	creates        bool            // the command may create the store

}

// creating returns the environment of a command that may create the store.
func (e environment) creating() environment {
	e.creates = true
	return e
}

// getenv returns a variable of the environment.
func (e environment) getenv(name string) (value string, ok bool) {
	for _, entry := range e.environ { // the last one counts
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}

// terminal reports whether standard error is a terminal.
func (e environment) terminal() bool { return isTerminal(e.stderr) }

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitNoReader    = 141 // as of a program that SIGPIPE has ended
)

// errInterrupted is the cause of a context that a signal canceled, errTerminated if it was SIGTERM.
var (
	errInterrupted = errors.New("interrupted")
	errTerminated  = fmt.Errorf("terminated: %w", errInterrupted)
)

// usageError is an error in the arguments or settings of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// display returns a display on standard error: bars on a terminal, lines elsewhere, and nothing with --quiet.
func (e environment) display() *monitor.Display {
	switch {
	case screenOf(e.stderr).muted:
		return monitor.New(e.stderr, monitor.None)
	case e.terminal():
		return monitor.New(raw(e.stderr), monitor.Bars)
	}
	return monitor.New(raw(e.stderr), monitor.Lines)
}
