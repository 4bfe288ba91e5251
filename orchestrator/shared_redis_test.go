package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/config"
	"muster/orchestrator/redisd"
)

// Run and RunWorker return when the orchestrator that owns their Redis exits, even if they wait for a job.
func TestAllEndWithASharedRedis(t *testing.T) {
	t.Parallel()
	shared := func(reuse bool) func(context.Context, config.Config, func()) error {
		return func(ctx context.Context, cfg config.Config, ready func()) error {
			cfg.Redis.Mode = string(redisd.Auto)
			return Run(ctx, cfg, Options{Reuse: reuse}, func(ctx context.Context, o *Orchestrator) error {
				if err := o.Workers.Start(ctx); err != nil {
					return err
				}
				ready()
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}
	}
	for name, second := range map[string]func(ctx context.Context, cfg config.Config, ready func()) error{
		"own workers": shared(false), "shared workers": shared(true),
		"worker": func(ctx context.Context, cfg config.Config, ready func()) error {
			return RunWorker(ctx, cfg, WorkerOptions{Ready: ready})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := settings(t)
			cfg.Redis.Attempts, cfg.Redis.Interval, cfg.Shutdown.Drain = 2, 10*time.Millisecond, time.Second
			up, over := make(chan struct{}), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
					err := o.Workers.Start(ctx)
					close(up)
					<-over
					return err
				})
			}()
			<-up
			if err := second(t.Context(), cfg, func() { close(over) }); !errors.Is(err, redisd.ErrGone) {
				t.Errorf("got %v, want %v", err, redisd.ErrGone)
			}
			testutil.Ok(t, <-done)
		})
	}
}

// The Redis of a killed orchestrator may still respond while it shuts down. A command then starts another Redis.
func TestRedisOfAKilledOrchestratorIsNotUsed(t *testing.T) {
	t.Parallel()
	dying := redistest.Server(t)
	cfg := settings(t)
	text := fmt.Sprintf(`{"url": %q, "mode": "child", "owner": {"pid": 1, "start": "before", "exe": "/bin/muster"}, "id": "killed"}`, dying.URL())
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.DataDir, "redis.json"), []byte(text), 0o600))
	err := Run(t.Context(), cfg, Options{Reuse: true}, func(_ context.Context, o *Orchestrator) error {
		if o.redis.URL() == dying.URL() || o.redis.Mode() != redisd.Embedded {
			t.Errorf("got the Redis %s, mode %s, want an embedded one", o.redis.URL(), o.redis.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
