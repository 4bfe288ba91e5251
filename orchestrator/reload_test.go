package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/testutil"
	"muster/jobs/agent"
	"muster/orchestrator/config"
	"muster/proxies"
	"muster/tasks"
)

// Repeated reloads while tasks run do not lose tasks.
func TestReloadsDoNotLoseTasks(t *testing.T) {
	t.Parallel()
	const reloads, workflows = 200, 50
	cfg := settings(t)
	cfg.Sites.Dir = t.TempDir()
	site := filepath.Join(cfg.Sites.Dir, "one.yaml")
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		serving := make(chan error, 1)
		go func() { serving <- o.Serve(ctx) }()
		var all errgroup.Group
		all.Go(func() error {
			for i := range reloads {
				next := cfg
				next.Workers.Concurrency = 1 + i%16
				next.Jobs.CheckEvery = time.Duration(1+i%5) * time.Second
				next.API.Keys = []string{fmt.Sprint("key-number-that-is-long-enough-", i)}
				next.Agents.Static = []agent.Static{{Role: "creator", URL: fmt.Sprintf("http://127.0.0.1:%d", 1+i%9)}}
				next.Sites.Schedule = map[string]string{"quotes.toscrape.com": fmt.Sprintf("@every %dh", 100+i)}
				text := fmt.Sprintf("site: one\nbase_url: http://127.0.0.1:%d\nstart: [/]\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n", 1+i%9)
				if err := os.WriteFile(site, []byte(text), 0o600); err != nil {
					return err
				}
				if _, err := o.Reload(next); err != nil {
					return fmt.Errorf("reload %d: %w", i, err)
				}
			}
			return nil
		})
		all.Go(func() error {
			var sent []*tasks.Run[proxies.Report]
			for range workflows {
				run, err := proxies.Recheck.S(struct{}{}).Send(ctx, o.Client)
				if err != nil {
					return err
				}
				sent = append(sent, run)
			}
			for i, run := range sent {
				if _, err := run.Wait(ctx); err != nil {
					return fmt.Errorf("workflow %d: %w", i, err)
				}
			}
			return nil
		})
		if err := all.Wait(); err != nil {
			return err
		}
		if got := o.Config(); got.API.Keys[0] != fmt.Sprint("key-number-that-is-long-enough-", reloads-1) || got.Workers.Concurrency != 1+(reloads-1)%16 {
			t.Errorf("got %+v, want the last settings", got)
		}
		stop()
		if err := <-serving; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the error of the context", err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

// Invalid settings are rejected as a whole.
func TestReloadIsAllOrNothing(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Sites.Dir = t.TempDir()
	err := Run(t.Context(), cfg, Options{}, func(_ context.Context, o *Orchestrator) error {
		for want, change := range map[string]func(*config.Config){
			"nosuchsite":   func(c *config.Config) { c.Sites.Schedule = map[string]string{"nosuchsite": "@daily"} },
			"no such file": func(c *config.Config) { c.Sites.Dir = filepath.Join(t.TempDir(), "none") },
			"agent 2": func(c *config.Config) {
				c.Agents.Static = []agent.Static{{Role: "a", URL: "http://a"}, {Role: "a", URL: "http://a"}}
			},
		} {
			next := cfg
			next.Workers.Concurrency++
			next.Jobs.StuckAfter = 5 * time.Minute
			change(&next)
			if _, err := o.Reload(next); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			if got := o.Config(); got.Workers.Concurrency != cfg.Workers.Concurrency || got.Jobs.StuckAfter != cfg.Jobs.StuckAfter {
				t.Errorf("%s: got %+v, want the settings as before", want, got)
			}
		}
		text := "site: one\nbase_url: http://127.0.0.1:1\nstart: [/]\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
		if err := os.WriteFile(filepath.Join(cfg.Sites.Dir, "one.yaml"), []byte(text), 0o600); err != nil {
			return err
		}
		changed, err := o.Reload(cfg)
		if err != nil || !slices.Equal(changed, []string{"site one: added"}) {
			t.Errorf("got %q, %v; want the site that was added", changed, err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

func TestWorkerProcessesListenOnDistinctPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, want string
		n           int
	}{
		{"127.0.0.1:9101", "127.0.0.1:9101", 0},
		{"127.0.0.1:9101", "127.0.0.1:9103", 2},
		{"[::1]:9101", "[::1]:9102", 1},
		{":65535", ":65535", 0},
		{"127.0.0.1:0", "127.0.0.1:0", 3},
		{":65535", "", 1},
		{"127.0.0.1:none", "", 0},
	} {
		got, err := nthAddress(c.first, c.n)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("address %d after %s: got %q, %v, want %q", c.n, c.first, got, err, c.want)
		}
	}
}
