package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/config"
	"muster/orchestrator/demo"
	"muster/orchestrator/redisd"
	"muster/proxies"
	"muster/sites"
)

// lateKey marks the context of a caller that sees the state of workflows late.
type lateKey struct{}

// late has a hook of Redis. Calls with the mark in the context see a workflow only after its job has completed and remove has
// deleted its keys.
type late struct {
	rdb    redis.UniversalClient
	prefix func(job string) string // prefix of the progress keys
	remove func(job string)
	once   sync.Once
}

func (l *late) hold(ctx context.Context, cmd redis.Cmder) {
	if ctx.Value(lateKey{}) == nil || !strings.HasPrefix(cmd.Name(), "h") || len(cmd.Args()) < 2 {
		return
	}
	if _, ref, ok := strings.Cut(fmt.Sprint(cmd.Args()[1]), ":w:"); ok {
		id, _, _ := strings.Cut(ref, "~")
		l.once.Do(func() {
			testutil.Becomes(func() bool {
				return l.rdb.Get(context.Background(), l.prefix(id)+":status").Val() == "COMPLETE"
			})
			l.remove(id)
		})
	}
}

// unlink deletes all keys that match patterns. Each pattern must match a key.
func unlink(t *testing.T, rdb redis.UniversalClient, patterns ...string) {
	for _, pattern := range patterns {
		keys, err := rdb.Keys(context.Background(), pattern).Result()
		if err == nil && len(keys) > 0 {
			err = rdb.Unlink(context.Background(), keys...).Err()
		}
		if err != nil || len(keys) == 0 {
			t.Errorf("remove %s: %d keys, %v", pattern, len(keys), err)
		}
	}
}

// atEveryStage runs fn once for each stage that can detect the end of its job, with an orchestrator that uses the workers of
// another one over a slow connection: the keys of earlier stages are removed first. check returns the ID of the job.
func atEveryStage[T any](t *testing.T, prefix func(job string) string, stored func(job string) string, change func(*config.Config), fn func(context.Context, *Orchestrator) (T, error), check func(*testing.T, config.Config, *demo.World, T) (job string)) {
	for stage, gone := range map[string]func(id string) []string{
		stageEvent:   nil,
		stagePolling: func(id string) []string { return []string{"*:w:" + id + "~*"} },
		stageFile:    func(id string) []string { return []string{"*:w:" + id + "~*", prefix(id) + ":*", stored(id)} },
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			cfg, world := worldSettings(t)
			change(&cfg)
			cfg.Redis.Mode, cfg.Redis.URL = string(redisd.External), redistest.URL(t)
			var log testutil.Output
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			var got T
			testutil.Ok(t, Run(t.Context(), cfg, Options{}, func(ctx context.Context, workers *Orchestrator) error {
				if err := workers.Workers.Start(ctx); err != nil {
					return err
				}
				rdb := workers.Client.Redis()
				return Run(ctx, cfg, Options{Reuse: true, Logger: logger}, func(ctx context.Context, o *Orchestrator) (err error) {
					if gone != nil {
						o.Client.Redis().AddHook(redistest.Before((&late{rdb: rdb, prefix: prefix, remove: func(id string) { unlink(t, rdb, gone(id)...) }}).hold))
					}
					got, err = fn(context.WithValue(ctx, lateKey{}, true), o)
					return err
				})
			}))
			if id := check(t, cfg, world, got); id == "" || !strings.Contains(log.String(), "job="+id+" stage="+stage) {
				t.Errorf("stage %s did not detect the end:\n%s", stage, log.String())
			}
		})
	}
}

// The caller receives the complete summary at every stage that can detect the end of a scrape.
func TestScrapeReturnsSummaryAtEveryStage(t *testing.T) {
	t.Parallel()
	atEveryStage(t, func(id string) string { return sites.ProgressPrefix("news") + ":" + id }, func(id string) string { return "muster:sites:" + id + ":*" },
		func(cfg *config.Config) { cfg.Proxies.Fallback, cfg.Proxies.MinUsable = "wait", 3 },
		func(ctx context.Context, o *Orchestrator) (Scraped, error) {
			if err := o.Proxies.Ensure(context.WithoutCancel(context.WithValue(ctx, lateKey{}, nil))); err != nil {
				return Scraped{}, err
			}
			return o.Scraper.Scrape(ctx, "news", ScrapeOptions{})
		}, func(t *testing.T, cfg config.Config, world *demo.World, got Scraped) string {
			report, ok, err := sites.Reported(filepath.Join(cfg.Records(), "news", got.JobID), got.JobID)
			if err != nil || !ok {
				t.Fatalf("got no report: %v", err)
			}
			want := Scraped{Site: "news", JobID: report.JobID, Status: "COMPLETE", Pages: report.Pages, Records: len(world.News.Truth()),
				Changes: report.Changes, Files: report.Files, Seconds: got.Seconds, Health: report.Health.Status, Data: report.Health.Data}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if got.Pages == 0 || got.Changes.New != got.Records {
				t.Errorf("got %d pages, %d new, want pages and all records new", got.Pages, got.Changes.New)
			}
			return got.JobID
		})
}

// The caller receives the complete report at every stage that can detect the end of a refresh.
func TestRefreshReturnsReportAtEveryStage(t *testing.T) {
	t.Parallel()
	atEveryStage(t, func(id string) string { return proxies.ProgressPrefix + ":" + id }, func(id string) string { return "*:report:" + id }, func(*config.Config) {},
		func(ctx context.Context, o *Orchestrator) (proxies.Report, error) { return o.Proxies.Refresh(ctx) },
		func(t *testing.T, cfg config.Config, world *demo.World, got proxies.Report) string {
			n := strings.Count(string(testutil.Must(os.ReadFile(cfg.Proxies.Sources[0].URL))(t)), "\n")
			if got.Candidates != n || got.Checked != n || got.Usable == 0 || got.Live < got.Usable || len(got.Sources) != 1 {
				t.Errorf("got %+v, want all %d candidates of one source, and some usable of %d proxies", got, n, len(world.Proxies))
			}
			file, ok, err := proxies.ReadReport(cfg.DataDir, got.JobID)
			if err != nil || !ok || !reflect.DeepEqual(got, file) {
				t.Errorf("got  %+v\nfile %+v, %v", got, file, err)
			}
			return got.JobID
		})
}

// The wait for a job ends when Redis has lost all data.
func TestWaitEndsAfterRedisWasFlushed(t *testing.T) {
	t.Parallel()
	scrape := func(ctx context.Context, o *Orchestrator) error {
		_, err := o.Scraper.Scrape(ctx, "slow", ScrapeOptions{})
		return err
	}
	refresh := func(ctx context.Context, o *Orchestrator) error {
		_, err := o.Proxies.Refresh(ctx)
		return err
	}
	for name, c := range map[string]struct {
		wait  func(context.Context, *Orchestrator) error
		reuse bool // use the workers of another orchestrator
	}{
		"scrape":                        {scrape, false},
		"scrape by workers of another":  {scrape, true},
		"refresh":                       {refresh, false},
		"refresh by workers of another": {refresh, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, answer := make(chan struct{}), make(chan struct{})
			var once, end sync.Once
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				once.Do(func() { close(asked) })
				<-answer
				_, _ = io.WriteString(w, "<h1>too late</h1>")
			}))
			release := func() { end.Do(func() { close(answer) }) }
			t.Cleanup(func() { release(); server.Close() })
			cfg := settings(t)
			cfg.Proxies.Sources, cfg.Proxies.AllowLocal = config.SourcesAt(server.URL), true
			cfg.Sites.Dir = t.TempDir()
			definition := "site: slow\nbase_url: " + server.URL + "\nstart: [/]\npoliteness: {robots: false}\nproxy: {fallback: direct}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
			testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "slow.yaml"), []byte(definition), 0o600))
			cfg.Redis.Mode, cfg.Redis.URL = string(redisd.External), redistest.URL(t)
			wait := func(ctx context.Context, o *Orchestrator) error {
				emptied := make(chan error, 1)
				go func() {
					<-asked
					emptied <- o.Client.Redis().FlushDB(ctx).Err()
				}()
				err := c.wait(ctx, o)
				release() // lets the workers stop
				if !errors.Is(err, ErrUnknown) {
					t.Errorf("got %v, want %v", err, ErrUnknown)
				}
				return <-emptied
			}
			err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
				if !c.reuse {
					return wait(ctx, o)
				}
				if err := o.Workers.Start(ctx); err != nil {
					return err
				}
				return Run(ctx, cfg, Options{Reuse: true}, wait)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
