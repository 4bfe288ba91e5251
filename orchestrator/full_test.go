package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/health"
	"muster/orchestrator/redisd"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// Workers cannot send heartbeats while the disk of Redis is full, and are not listed immediately afterwards.
func TestWorkersAreAliveWhileTheDiskOfRedisIsFull(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	cfg := settings(t)
	cfg.Redis.Mode, cfg.Redis.URL = string(redisd.External), srv.URL()
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		second := cfg
		second.DataDir = t.TempDir()
		return Run(ctx, second, Options{Reuse: true}, func(ctx context.Context, other *Orchestrator) error {
			if err := other.Workers.Start(ctx); err != nil {
				return err
			}
			srv.FillDisk()
			testutil.Eventually(t, "the list of workers is out of date", func() bool {
				_, err := other.Client.Inspect().Workers(ctx)
				return tasks.Refused(err)
			})
			wantAlive := func(when string) {
				if err := other.Workers.alive(ctx); err != nil {
					t.Errorf("%s: got %q, want no error", when, err)
				}
			}
			wantAlive("full")
			for _, c := range other.health(ctx).Checks {
				if c.Name == "redis" && (c.Status != health.Failed || !strings.Contains(c.Error, srv.Dir)) || c.Name == "workers" && c.Status != health.Unknown {
					t.Errorf("health of %s: got %s, %q; want redis failed with the disk of %s, and workers unknown", c.Name, c.Status, c.Error, srv.Dir)
				}
			}
			srv.FreeDisk()
			testutil.Eventually(t, "there is room", func() bool { return other.Client.Writable(ctx) == nil })
			wantAlive("with room again")
			return nil
		})
	})
	testutil.Ok(t, err)
}

func TestMissingWorkersAreReported(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Workers.PingTimeout = time.Second // the ping times out
	err := Run(t.Context(), cfg, Options{Reuse: true}, func(ctx context.Context, o *Orchestrator) error {
		if err := o.Workers.alive(ctx); err == nil || !strings.Contains(err.Error(), "no workers are running") {
			t.Errorf("got %v, want that no workers are running", err)
		}
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		if err := o.Workers.alive(ctx); err != nil {
			t.Errorf("with own workers: got %v, want nil", err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

func TestRejectedWritesDoNotCountAsAttempts(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	rdb := srv.Client()
	srv.FillDisk()
	full := rdb.Set(t.Context(), "x", "x", 0).Err()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"full disk": {fmt.Errorf("store: %w", full), true}, "permanent": {tasks.Permanent(full), true},
		"another error": {errors.New("no"), false},
	} {
		got := waitForRoom(t.Context(), tasktype.Info{}, func(context.Context) error { return c.err })
		if tasks.IsFailure(got) == c.want || !c.want && !errors.Is(got, c.err) {
			t.Errorf("%s: got %v, want an uncounted retry: %v", name, got, c.want)
		}
	}
}
