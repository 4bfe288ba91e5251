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
	"muster/orchestrator/redisd"
)

// Run returns when the orchestrator that owns its Redis exits, even if it waits for a job.
func TestRunEndsWithASharedRedis(t *testing.T) {
	t.Parallel()
	for name, reuse := range map[string]bool{"own workers": false, "shared workers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := settings(t)
			cfg.Redis.Attempts, cfg.Redis.Interval, cfg.Shutdown.Drain = 2, 10*time.Millisecond, time.Second
			up, over := make(chan struct{}), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
					if err := o.Workers.Start(ctx); err != nil {
						return err
					}
					close(up)
					<-over
					return nil
				})
			}()
			<-up
			second := cfg
			second.Redis.Mode = string(redisd.Auto)
			err := Run(t.Context(), second, Options{Reuse: reuse}, func(ctx context.Context, o *Orchestrator) error {
				if err := o.Workers.Start(ctx); err != nil {
					return err
				}
				close(over)
				if err := <-done; err != nil {
					return err
				}
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !errors.Is(err, redisd.ErrGone) {
				t.Errorf("got %v, want %v", err, redisd.ErrGone)
			}
		})
	}
}

// RunWorker returns when the orchestrator that owns its Redis exits.
func TestWorkerEndsWithTheRedisOfItsDataDirectory(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Redis.Attempts, cfg.Redis.Interval = 2, 10*time.Millisecond
	up, over := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), cfg, Options{}, func(context.Context, *Orchestrator) error {
			close(up)
			<-over
			return nil
		})
	}()
	<-up
	err := RunWorker(t.Context(), cfg, WorkerOptions{Ready: func() { close(over) }})
	if !errors.Is(err, redisd.ErrGone) {
		t.Errorf("got %v, want %v", err, redisd.ErrGone)
	}
	if err := <-done; err != nil {
		t.Error(err)
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
