package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// hangups passes each SIGHUP of the process to the command that can reload
// something. SIGHUP never ends the process, even when its terminal is closed.
type hangups struct {
	mu     sync.Mutex     // guards the fields below
	reload map[int]func() // by a number that grows
	next   int
}

// watch handles signals until over is closed. A command without reloadable settings prints a line on w.
func (h *hangups) watch(done <-chan struct{}, w io.Writer) {
	signals := make(chan os.Signal, 1) // one pending signal suffices: a reload reads the current files
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-done:
				return
			case <-signals:
			}
			if !h.call() {
				fmt.Fprintln(w, nothingToReload)
			}
		}
	}()
}

const nothingToReload = "muster: SIGHUP: there is nothing to reload; SIGTERM or Ctrl-C ends it"

// call calls the command's SIGHUP handler, and reports whether it has one.
func (h *hangups) call() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, reload := range h.reload {
		reload()
	}
	return len(h.reload) > 0
}

// onHangup calls reload, which must not block, at each SIGHUP until the returned
// function is called.
func (e environment) onHangup(reload func()) (undo func()) {
	h := e.hangups
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reload == nil {
		h.reload = map[int]func(){}
	}
	n := h.next
	h.next++
	h.reload[n] = reload
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.reload, n)
	}
}

// outliveReaders makes a write to a pipe without a reader fail. By default it
// ends the process at once, in the middle of its tasks.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
