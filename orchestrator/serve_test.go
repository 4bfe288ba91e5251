package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/orchestrator/api"
)

// A port in use is an error only if Options.NeedAPI is set.
func TestServeWithAPortInUse(t *testing.T) {
	t.Parallel()
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(t *testing.T, need bool, during func(out *testutil.Output)) error {
		cfg := settings(t)
		cfg.API.Listen = l.Addr().String()
		out := &testutil.Output{}
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
		err := serve(t, true, func(*testutil.Output) { <-done })
		close(done)
		if !errors.Is(err, api.ErrTaken) || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("got %v, want an error with the address in use", err)
		}
	})
	t.Run("default", func(t *testing.T) {
		t.Parallel()
		err := serve(t, false, func(out *testutil.Output) {
			testutil.Eventually(t, "the warning contains advice", func() bool {
				return strings.Contains(out.String(), "level=WARN") && strings.Contains(out.String(), "api.listen") && strings.Contains(out.String(), "api.enabled") && strings.Contains(out.String(), l.Addr().String())
			})
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want it to run until it is stopped", err)
		}
	})
}
