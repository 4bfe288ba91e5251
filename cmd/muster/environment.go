package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// environment is what commands use of their process.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string        // KEY=value
	hard           context.Context // done at the second signal: stop without waiting for tasks
	hangups        *hangups        // nil where SIGHUP is not answered
	level          *slog.LevelVar  // of the loggers of the command; nil where it does not change
}

// terminal reports whether standard error is a terminal.
func (e environment) terminal() bool { return isTerminal(e.stderr) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitNoReader    = 141 // as of a program that SIGPIPE has ended
)

// errInterrupted is the cause of a context that a signal canceled.
var errInterrupted = errors.New("interrupted")

// usageError is an error in the arguments or settings of a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
