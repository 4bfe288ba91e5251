package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/api"
)

// logged is a log writer with a readable buffer.
type logged struct {
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.out.String(), text)
}

// A port in use is an error only if Options.NeedAPI is set.
func TestServeWithAPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Ok(t, err)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(t *testing.T, need bool, during func(out *logged)) error {
		cfg := settings(t)
		cfg.API.Listen = l.Addr().String()
		out := &logged{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			during(out)
			stop()
		}()
		return Run(ctx, cfg, Options{Logger: slog.New(slog.NewTextHandler(out, nil)), NeedAPI: need},
			func(ctx context.Context, o *Orchestrator) error { return o.Serve(ctx) })
	}
	t.Run("asked for", func(t *testing.T) {
		t.Parallel()
		done := make(chan struct{})
		err := serve(t, true, func(*logged) { <-done })
		close(done)
		if !errors.Is(err, api.ErrTaken) || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("got %v, want an error with the address in use", err)
		}
	})
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		err := serve(t, false, func(out *logged) {
			testutil.Eventually(t, "the warning contains advice", func() bool {
				return out.has("level=WARN") && out.has("api.listen") && out.has("api.enabled") && out.has(l.Addr().String())
			})
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it to run until it is stopped", err)
		}
	})
}
