// Command muster runs distributed tasks on Redis, keeps a pool of working
// proxies and scrapes sites through it. See "muster help".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
)

func main() { os.Exit(Main()) }

// Main runs the command of the process and returns its exit code. The first
// SIGINT or SIGTERM cancels the context of the command, which then drains; the
// second cancels the context for an immediate stop. SIGHUP stops nothing.
func Main() int {
	cli.HelpPrinter = printHelp
	logging.Disable() // callers of go-redis get failed dials as errors
	orchestrator.Version = thisVersion()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	hard, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	_, undo := onHangup() // SIGHUP never ends the process, even when its terminal is closed
	defer undo()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for _, end := range []context.CancelCauseFunc{cancel, stop} {
			select {
			case s := <-signals:
				if s == syscall.SIGTERM {
					end(errTerminated)
				} else {
					end(errInterrupted)
				}
			case <-done:
				return
			}
		}
	}()
	env := environment{
		stdin: os.Stdin, stdout: newScreen(os.Stdout, os.Environ()), stderr: newScreen(os.Stderr, os.Environ()),
		environ: os.Environ(), hard: hard, level: new(slog.LevelVar),
	}
	return run(ctx, env, os.Args)
}

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

// onHangup returns a channel that receives a value at each SIGHUP until undo is called. One pending value suffices: a reload
// reads the current files.
func onHangup() (now chan os.Signal, undo func()) {
	now = make(chan os.Signal, 1)
	signal.Notify(now, syscall.SIGHUP)
	return now, func() { signal.Stop(now) }
}

// outliveReaders makes a write to a pipe without a reader fail. By default it
// ends the process at once, in the middle of its tasks.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

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

// timeoutError is the cause of a context whose time in --timeout has passed.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("not ended after %s", e.after) }

// withState adds the state of the work to the error of a command that was interrupted or has waited for --timeout.
// It returns other errors as they are.
func withState(ctx context.Context, err error, format string, args ...any) error {
	switch cause := context.Cause(ctx); {
	case errors.As(cause, new(timeoutError)):
		return fmt.Errorf("%w; %s", cause, fmt.Sprintf(format, args...))
	case !errors.Is(cause, errInterrupted):
		return err
	}
	return interruption(fmt.Sprintf(format, args...))
}

// withJobState is withState for a command that waits for jobs of a kind, "jobs" or "scrapes", and may have done their work
// itself, unless o is nil. The command again continues them.
func withJobState(ctx context.Context, o *orchestrator.Orchestrator, err error, kind string, ids []string, again string) error {
	if ctx.Err() == nil {
		return err
	}
	queryCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	elsewhere, queryErr := true, error(nil)
	if o != nil {
		elsewhere, queryErr = o.Workers.Elsewhere(queryCtx)
	}
	switch {
	case len(ids) == 0:
		return withState(ctx, err, "nothing was sent; begin again with %s", again)
	case queryErr == nil && elsewhere:
		show := map[string]string{"jobs": "status", "scrapes": "get"}[kind]
		return withState(ctx, err, "the work continues in the background; wait for it with muster %[1]s %[2]s ID --wait, or end it with muster %[1]s cancel ID; %[1]s: %[3]s", kind, show, strings.Join(ids, ", "))
	}
	return withState(ctx, err, "finished work is kept, and nothing resumes automatically; resume with %s, or with muster start", again)
}

// watch returns a function that reloads the settings of a command on SIGHUP and when
// their files change. Each reload is logged on w at any log.level.
// It is nil for settings that come from no file and no environment.
func (e environment) watch(loaded *config.Loaded, w io.Writer) orchestrator.Watch {
	if !loaded.Watched() {
		return nil
	}
	now, undo := onHangup() // from now on, also while the command starts
	return func(ctx context.Context, apply func(config.Config) ([]string, error)) {
		defer undo()
		always := e
		always.level = nil
		config.Watcher{
			Now: now, Logger: newLogger(always, w, config.Log{Level: "info", Format: loaded.Log.Format}),
			Apply: func(cfg config.Config) ([]string, error) {
				changed, err := apply(cfg)
				if err == nil && e.level != nil {
					e.level.Set(e.levelOf(cfg.Log))
				}
				return changed, err
			},
		}.Run(ctx, loaded)
	}
}

// watchKey calls set with the content of the file of a key at SIGHUP, and when
// the file has changed, until stop is called. Each time is a line on standard
// error; a key that cannot be used leaves the old one in force. Without a file it
// does nothing.
func (e environment) watchKey(ctx context.Context, file string, set func(text string) error) (stop func()) {
	if file == "" {
		return func() {}
	}
	now, undo := onHangup()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		config.WatchFiles(ctx, now, func() {
			if err := readKey(file, set); err != nil {
				fmt.Fprintf(e.stderr, "the key in force stays: %v\n", err)
				return
			}
			fmt.Fprintf(e.stderr, "reloaded: %s\n", file)
		}, file)
	}()
	return func() { undo(); cancel(); <-ended }
}
