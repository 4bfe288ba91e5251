// Command muster runs distributed tasks on Redis, keeps a pool of working
// proxies and scrapes sites through it. See "muster help".
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v2"

	"muster/orchestrator"
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
