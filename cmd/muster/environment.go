package main

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/term"
)

// environment is what commands may touch of the world outside.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string        // KEY=value
	hard           context.Context // done when the user will not wait for a drain any more
	hangups        *hangups        // nil where SIGHUP is not answered
}

// terminal tells whether standard error is read by a person right now.
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

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// usageError is an error of whoever typed the command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
