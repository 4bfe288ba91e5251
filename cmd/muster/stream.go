package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"muster/orchestrator"
)

// streamRecords scrapes sites and prints their records as they are found, one a
// line. The scrapes end when the reader closes standard output.
func streamRecords(ctx context.Context, env environment, o *orchestrator.Orchestrator, args scrapeArgs) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := startLines(ctx, env.stdout, cancel)
	args.opts.Each = out.put
	round, err := o.Scraper.Round(ctx, args.names, args.opts)
	if outErr := out.end(); err == nil {
		err = outErr
	}
	if round == nil {
		return err
	}
	return withJobState(ctx, o, errors.Join(err, round.Lost(args.failOn)), "scrapes", jobsOf(round), sameCommand)
}

// lineWriter prints the lines of many goroutines. While its reader does not read
// they wait, until ctx is done.
type lineWriter struct {
	ctx   context.Context
	lines chan []byte
	done  chan struct{} // closed when all lines are written, or none will be
}

// startLines prints to w, until a write fails: then it calls failed.
func startLines(ctx context.Context, w io.Writer, failed context.CancelCauseFunc) *lineWriter {
	l := &lineWriter{ctx: ctx, lines: make(chan []byte), done: make(chan struct{})}
	// A write to a pipe whose reader does not read cannot be canceled: then
	// this goroutine ends with the process.
	go func() {
		defer close(l.done)
		for line := range l.lines {
			if _, err := w.Write(line); err != nil {
				if errors.Is(err, syscall.EPIPE) {
					err = orchestrator.ErrNoReader
				} else {
					err = fmt.Errorf("print records: %w; they are also in the directory of the job", err)
				}
				failed(err)
				return
			}
		}
	}()
	return l
}

// put prints a line.
func (l *lineWriter) put(line []byte) error {
	select {
	case l.lines <- append(slices.Clip(line), '\n'): // a copy
		return nil
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// end waits until all lines are printed, and returns why they were not. Do not
// call put after it.
func (l *lineWriter) end() error {
	close(l.lines)
	select {
	case <-l.done:
	case <-l.ctx.Done():
	}
	return context.Cause(l.ctx)
}
