package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// hangups gives each SIGHUP of the process to whoever can reload something.
// It never ends the process, also not when its terminal has gone.
type hangups struct {
	mu     sync.Mutex // guards the fields below
	reload []func()   // the last one counts
}

// watch answers signals until over is closed. Who reloads nothing says so on w.
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

// onHangup has reload called at each SIGHUP, by one at a time, until the
// returned function is called. Of several that of the last call counts.
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

// outliveReaders lets a write to a pipe that nobody reads fail. By default it
// ends the process at once, with what it runs half done.
func outliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
