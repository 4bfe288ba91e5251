package main

import (
	"context"
	"fmt"
	"io"

	"muster/internal/secret"
	"muster/orchestrator"
	"muster/orchestrator/config"
)

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
			text, err := secret.Read(file)
			if err == nil {
				err = set(text)
			}
			if err != nil {
				fmt.Fprintf(e.stderr, "the key in force stays: %v\n", err)
				return
			}
			fmt.Fprintf(e.stderr, "reloaded: %s\n", file)
		}, file)
	}()
	return func() { undo(); cancel(); <-ended }
}
