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
	mu     sync.Mutex // guards the fields below
	reload []func()   // the last one counts
}

// watch handles signals until over is closed. A command that cannot reload anything says so on w.
func (h *hangups) watch(over <-chan struct{}, w io.Writer) {
	signals := make(chan os.Signal, 1) // one that waits stands for all: it reads what is there then
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-over:
				return
			case <-signals:
			}
			if reload := h.last(); reload != nil {
				reload()
				continue
			}
			fmt.Fprintln(w, nothingToReload)
		}
	}()
}

const nothingToReload = "muster: SIGHUP: there is nothing to reload; SIGTERM or Ctrl-C ends it"

func (h *hangups) last() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.reload) == 0 {
		return nil
	}
	return h.reload[len(h.reload)-1]
}

// onHangup calls reload at each SIGHUP, never twice at once, until the returned
// function is called. The last call of onHangup counts.
func (e environment) onHangup(reload func()) (undo func()) {
	h := e.hangups
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reload = append(h.reload, reload)
	n := len(h.reload) - 1
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reload = h.reload[:n]
	}
}

// outliveReaders makes a write to a pipe without a reader fail. By default it
// ends the process at once, in the middle of its tasks.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
