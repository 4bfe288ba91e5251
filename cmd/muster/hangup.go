package main

import (
	"os"
	"os/signal"
	"syscall"
)

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
