package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/orchestrator/demo"
	"muster/orchestrator/redisd"
	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/tasks"
	"muster/tasks/tasktype"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// settings returns the settings of a separate system with an embedded Redis.
func settings(t *testing.T) config.Config {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Redis.Mode = string(redisd.Embedded)
	cfg.Wait.Poll = 100 * time.Millisecond
	return cfg
}

// worldSettings returns settings for a world whose proxy list contains only proxies that respond.
func worldSettings(t *testing.T) (config.Config, *demo.World) {
	world := testutil.Must(demo.Start(t.Context(), demo.Config{Dir: t.TempDir()}))(t)
	t.Cleanup(func() { _ = world.Close() })
	var list strings.Builder
	for _, p := range world.Proxies {
		if p.Expect().Usable() && p.Kind != proxytest.Slow {
			list.WriteString(p.URL.String() + "\n")
		}
	}
	cfg := settings(t)
	cfg.Proxies.Sources = config.SourcesAt(filepath.Join(t.TempDir(), "list.txt"))
	testutil.Ok(t, os.WriteFile(cfg.Proxies.Sources[0].URL, []byte(list.String()), 0o600))
	cfg.Proxies.Judges, cfg.Proxies.JudgeKey, cfg.Proxies.AllowLocal = []string{world.Judge}, world.JudgeKey, true
	cfg.Sites.Dir = world.Definitions
	return cfg, world
}

func TestRunAlwaysStopsItsRedis(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	for name, fn := range map[string]func(context.Context) error{
		"return": func(context.Context) error { return nil },
		"error":  func(context.Context) error { return why },
		"panic":  func(context.Context) error { panic(why) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var url string
			var err error
			func() {
				defer func() {
					if r := recover(); r != nil {
						err, _ = r.(error)
					}
				}()
				err = Run(t.Context(), settings(t), Options{}, func(ctx context.Context, o *Orchestrator) error {
					url = o.Redis().URL()
					if err := o.Workers.Start(ctx); err != nil {
						return err
					}
					return fn(ctx)
				})
			}()
			if name != "return" && !errors.Is(err, why) || name == "return" && err != nil {
				t.Errorf("got error %v, want the error of %s", err, name)
			}
			if err := redisd.Ping(context.Background(), url, time.Second); err == nil {
				t.Errorf("the Redis at %s still responds", url)
			}
		})
	}
}

func TestEnsureProxiesRefreshesOnlyWhenThereAreFew(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		if err := o.Proxies.Ensure(ctx); err != nil {
			return err
		}
		usable, err := o.Pool.Usable(ctx)
		if err != nil || usable < cfg.Proxies.MinUsable {
			t.Errorf("%d usable, error %v, want at least %d", usable, err, cfg.Proxies.MinUsable)
		}
		first, err := o.Pool.Status(ctx)
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(cfg.DataDir, "live_proxies.json")); err != nil {
			t.Errorf("the pool was not exported: %v", err)
		}

		// The pool is full, so missing sources do not matter.
		o.cfg().Proxies.Sources = config.SourcesAt(filepath.Join(cfg.DataDir, "gone.txt"))
		if err := o.Proxies.Ensure(ctx); err != nil {
			t.Errorf("with enough proxies: %v", err)
		}
		if again, err := o.Pool.Status(ctx); err != nil || again != first {
			t.Errorf("it refreshed again: %+v, error %v", again, err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

// Proxies have the country and the network of their exit address, from a database.
func TestCountriesFromADatabase(t *testing.T) {
	t.Parallel()
	judge := testutil.Must(probe.StartJudge(probe.JudgeConfig{}))(t)
	t.Cleanup(func() { judge.Close() })
	proxy, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: netip.MustParseAddr("127.7.7.7")})
	testutil.Ok(t, err)
	t.Cleanup(proxy.Close)
	cfg := settings(t)
	cfg.Proxies.Judges = judge.URLs
	cfg.Proxies.MMDB = []string{"../proxies/geo/testdata/countries.mmdb"} // 127.7.0.0/16
	err = Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		address := netip.MustParseAddrPort(proxy.URL.Host)
		c := proxies.Candidate{Protocol: "http", Host: address.Addr().String(), Port: address.Port(), Country: "US"} // the value in the list
		if err := o.CheckProxies(ctx, []proxies.Candidate{c}, func(probe.Result) {}); err != nil {
			return err
		}
		lease, err := o.Pool.Pick(ctx, proxies.PickOptions{Filter: proxies.Filter{Countries: []string{"BG"}}})
		if err != nil {
			return err
		}
		defer lease.Release()
		if p := lease.Proxy; p.Country != "BG" || p.ASN != 64500 || p.ASOrg != "Example" {
			t.Errorf("got %s %d %s, want BG 64500 Example", p.Country, p.ASN, p.ASOrg)
		}
		return nil
	})
	testutil.Ok(t, err)
	cfg.Proxies.MMDB = []string{"/nowhere.mmdb"}
	if err := Run(t.Context(), cfg, Options{}, nil); err == nil || !strings.Contains(err.Error(), "proxies.mmdb") || !strings.Contains(err.Error(), "/nowhere.mmdb") {
		t.Errorf("got %v, want an error that names the setting and the file", err)
	}
}

// The pool is refilled automatically when it falls below the low-water mark.
func TestKeepRefillsThePool(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		ctx, cancel := context.WithCancel(ctx)
		var keeper sync.WaitGroup
		keeper.Go(func() { o.Proxies.keep(ctx, 20*time.Millisecond) })
		defer keeper.Wait()
		defer cancel()
		enough := func() bool {
			usable, err := o.Pool.Usable(ctx)
			return err == nil && usable >= cfg.Proxies.MinUsable
		}
		for range 2 {
			testutil.Eventually(t, "the pool is filled", enough)
			members, err := o.Pool.List(ctx, proxies.Everything)
			if err != nil {
				return err
			}
			for _, m := range members {
				if _, err := o.Pool.Remove(ctx, m.ID); err != nil {
					return err
				}
			}
		}
		testutil.Eventually(t, "the pool is filled", enough)
		return nil
	})
	testutil.Ok(t, err)
}

func TestEnsureReturnsTheCauseOfAnEmptyPool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*config.Config)
		is     error
		says   string
	}{
		"no sources":        {func(cfg *config.Config) { cfg.Proxies.Sources, cfg.Proxies.Fallback = nil, "fail" }, ErrFewProxies, "proxies.sources"},
		"unreadable":        {func(cfg *config.Config) { cfg.Proxies.Sources = config.SourcesAt("/nowhere/list.txt") }, nil, "no proxy source could be read"},
		"judge unreachable": {func(cfg *config.Config) { cfg.Proxies.Judges = []string{"http://127.0.0.1:1"} }, nil, "no judge is reachable"},
		"too few":           {func(cfg *config.Config) { cfg.Proxies.MinUsable = 1000 }, ErrFewProxies, "of 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, world := worldSettings(t)
			c.change(&cfg)
			err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
				// The scrape must fail, and must not fetch pages without a proxy.
				_, err := o.Scraper.Scrape(ctx, "shop", ScrapeOptions{})
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
			if n := world.Shop.Traffic().Requests(); n != 0 {
				t.Errorf("the site received %d requests without a proxy", n)
			}
		})
	}
}

func TestFailedSiteStopsOnlyItsDependents(t *testing.T) {
	t.Parallel()
	for name, parallel := range map[string]bool{"parallel": true, "sequential": false} {
		t.Run(name, func(t *testing.T) { t.Parallel(); testFailingSite(t, parallel) })
	}
}

func testFailingSite(t *testing.T, parallel bool) {
	t.Helper()
	cfg, world := worldSettings(t)
	broken := "site: broken\nbase_url: http://nowhere.example\nstart: [/]\nretries: {attempts: 0, base: 100ms}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "broken.yaml"), []byte(broken), 0o600))
	dependent := "site: dependent\nbase_url: http://news.example\nstart: [/]\ndepends_on: [broken]\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "dependent.yaml"), []byte(dependent), 0o600))
	var round *Round
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) (err error) {
		o.cfg().Sites.Parallel = parallel
		round, err = o.Scraper.Round(ctx, []string{"dependent", "broken", "news"}, ScrapeOptions{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "scrape broken") {
		t.Errorf("got error %v, want the error of broken", err)
	}
	status, records, why := map[string]string{}, map[string]int{}, map[string]string{}
	for _, s := range round.Sites {
		status[s.Site], records[s.Site], why[s.Site] = s.Status, s.Records, s.Error
	}
	if status["broken"] != "FAILED" || status["dependent"] != "FAILED" || status["news"] != "COMPLETE" {
		t.Errorf("got %v, want broken and dependent FAILED, news COMPLETE", status)
	}
	if !strings.Contains(why["dependent"], "not started: it depends on broken") {
		t.Errorf("dependent: got %q, want that it was not started", why["dependent"])
	}
	if n := len(world.News.Truth()); records["news"] != n {
		t.Errorf("news: %d records, want %d", records["news"], n)
	}
}

// A challenge with status 200 counts as a failure of the proxy at this site only.
func TestSoftBlockCountsForProxyAndSite(t *testing.T) {
	t.Parallel()
	wall := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>Just a moment...</title><form id=challenge-form></form>")
	}))
	proxy, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite})
	testutil.Ok(t, err)
	t.Cleanup(proxy.Close)
	cfg := settings(t)
	cfg.Proxies.MinUsable = 1
	cfg.Sites.Dir = t.TempDir()
	definition := "site: wall\nbase_url: " + wall.URL + "\nstart: [/]\nretries: {attempts: 0}\npoliteness: {robots: false}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "wall.yaml"), []byte(definition), 0o600))
	err = Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		address := netip.MustParseAddrPort(proxy.URL.Host)
		if _, err := o.Pool.Add(ctx, proxies.Proxy{Candidate: proxies.Candidate{Protocol: "http", Host: address.Addr().String(), Port: address.Port()}}); err != nil {
			return err
		}
		if _, err := o.Scraper.Scrape(ctx, "wall", ScrapeOptions{}); err == nil {
			t.Error("a challenge was accepted as a page")
		}
		if err := o.Pool.Flush(ctx); err != nil {
			return err
		}
		members, err := o.Pool.ListAt(ctx, "wall", proxies.Filter{})
		for _, m := range members {
			if h := m.SiteHealth; h == nil || h.Fails != 1 || !h.Until.After(h.LastFail) {
				t.Errorf("at the site: got %+v, want 1 failure and a cooldown", h)
			}
			if m.Health.Fails != 0 {
				t.Errorf("over all sites: got %v failures, want 0", m.Health.Fails)
			}
		}
		if len(members) != 1 {
			t.Errorf("got %v, want 1 member", members)
		}
		return err
	})
	testutil.Ok(t, err)
}

func TestScheduleOfTheSettings(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Sites.Dir = t.TempDir()
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "broken.yaml"), []byte("site: broken.example\nstartt: /\n"), 0o600))
	timed := "site: timed.example\nbase_url: http://timed.example\nstart: [/]\nschedule: '@every 2h'\nrecords: {r: {fields: {v: b}}}\n"
	testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, "timed.yaml"), []byte(timed), 0o600))
	cfg.Sites.Schedule = map[string]string{"quotes.toscrape.com": "@every 1h", "books.toscrape.com": "0 3 * * *"}
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		testutil.Ok(t, o.syncSchedules(ctx))
		if list, _, err := o.Client.Inspect().Schedules(ctx, tasktype.ScheduleFilter{Prefix: scrapeSchedule}); err != nil || len(list) != 3 || list[0].Name != "scrape.books.toscrape.com" || list[0].Spec != "0 3 * * *" {
			t.Errorf("got %+v, %v, want the schedules of three sites", list, err)
		}
		for spec, want := range map[string]string{"": "map[timed.example:@every 2h]", "off": "map[]", "@every 3h": "map[timed.example:@every 3h]"} {
			settings := map[string]string{"timed.example": spec}
			if spec == "" {
				settings = nil
			}
			if got := fmt.Sprint(o.Sites.Registry().Schedules(settings)); got != want {
				t.Errorf("the setting %q: got %s, want %s", spec, got, want)
			}
		}
		o.cfg().Sites.Schedule = map[string]string{"broken.example": "@every 1h", "books.toscrape.com": "0 3 * * *"}
		if _, err := schedules(o.Config(), o.Sites.Registry()); err != nil {
			t.Errorf("an invalid site: got %v, want the others scheduled", err)
		}
		o.cfg().Sites.Schedule = map[string]string{"qoutes.toscrape.com": "@every 1h"}
		if _, err := schedules(o.Config(), o.Sites.Registry()); err == nil || !strings.Contains(err.Error(), "quotes.toscrape.com") {
			t.Errorf("an unknown site: got %v, want an error with the nearest name", err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

func TestReuseUsesRunningWorkers(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		if err := o.Workers.Start(ctx); err != nil { // the second call does nothing
			return err
		}
		second := cfg
		second.DataDir = t.TempDir()
		second.Redis.Mode, second.Redis.URL = string(redisd.External), o.Redis().URL()
		return Run(ctx, second, Options{Reuse: true}, func(ctx context.Context, other *Orchestrator) error {
			if err := other.Workers.Start(ctx); err != nil {
				return err
			}
			live, err := tasks.NewClient(other.Client.Redis()).Inspect().Workers(ctx)
			if len(live) != 1 {
				t.Errorf("got %d workers, want the running one", len(live))
			}
			return err
		})
	})
	testutil.Ok(t, err)
}

// A killed worker is listed until its heartbeat expires. A new orchestrator starts a worker meanwhile.
func TestReuseIgnoresDeadWorkers(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	err := Run(t.Context(), cfg, Options{Reuse: true}, func(ctx context.Context, o *Orchestrator) error {
		ghost, err := json.Marshal(tasktype.Worker{Name: "ghost", Queues: map[string]int{"default": 1}})
		if err != nil {
			return err
		}
		rdb := o.Client.Redis()
		if err := errors.Join(rdb.Set(ctx, "muster:worker:ghost", ghost, time.Minute).Err(),
			rdb.Do(ctx, "ZADD", "muster:workers", time.Now().UnixMilli(), "ghost").Err()); err != nil {
			return err
		}
		if live, err := o.Client.Inspect().Workers(ctx); err != nil || len(live) != 1 {
			t.Errorf("got %v, %v; want the dead worker listed", live, err)
		}
		if others, err := o.Workers.Elsewhere(ctx); err != nil || others {
			t.Errorf("got %v, %v; want the dead worker ignored", others, err)
		}
		if err := o.Workers.Start(ctx); err != nil {
			return err
		}
		pongs, err := o.Client.Inspect().PingWorkers(ctx, 10*time.Millisecond)
		if !slices.ContainsFunc(pongs, func(p tasktype.Pong) bool { return p.Worker != "ghost" }) {
			t.Errorf("got workers %v, want a new one", pongs)
		}
		return err
	})
	testutil.Ok(t, err)
}

// The child Redis requires a password. Commands of the same user read it from the data directory.
func TestConnectRequiresThePassword(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		client, err := Connect(ctx, cfg)
		if err != nil {
			t.Errorf("with the data directory: %v", err)
		} else {
			_ = client.Close()
		}
		address, err := url.Parse(o.Redis().URL())
		if err != nil {
			return err
		}
		address.User = nil
		open := cfg
		open.Redis.Mode, open.Redis.URL = string(redisd.External), address.String()
		_, err = Connect(ctx, open)
		if err == nil || !strings.Contains(err.Error(), "NOAUTH") || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("without the password: got error %v, want NOAUTH and advice", err)
		}
		return nil
	})
	testutil.Ok(t, err)
}

// Commands that check no proxies open no listeners: the judge starts with the first check.
func TestJudgeStartsWithTheFirstCheck(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), settings(t), Options{}, func(ctx context.Context, o *Orchestrator) error {
		if o.judge.Load() != nil {
			t.Error("got a judge before the first check")
		}
		dead := proxies.Candidate{Protocol: "http", Host: "127.0.0.1", Port: 1}
		err := o.CheckProxies(ctx, []proxies.Candidate{dead}, func(probe.Result) {})
		if o.judge.Load() == nil {
			t.Error("got no judge after a check")
		}
		return err
	})
	testutil.Ok(t, err)
}

func TestScopeStopsPartsInReverseOrderOnce(t *testing.T) {
	t.Parallel()
	s := scope{logger: slog.New(slog.DiscardHandler)}
	var stopped []string
	for _, name := range []string{"redis", "log", "workers", "intake"} {
		s.add(name, func(context.Context) error {
			stopped = append(stopped, name)
			if name == "log" {
				return errors.New("disk full")
			}
			return nil
		})
	}
	err := s.close(t.Context())
	if want := []string{"intake", "workers", "log", "redis"}; !slices.Equal(stopped, want) {
		t.Errorf("got stopped %v, want %v", stopped, want)
	}
	if err == nil || !strings.Contains(err.Error(), "stop log: disk full") {
		t.Errorf("got error %v, want stop log: disk full", err)
	}
	if err := s.close(t.Context()); err != nil || len(stopped) != 4 {
		t.Errorf("a second close: error %v, stopped %v", err, stopped)
	}
}

// Every process checks the schema of the store when it connects.
func TestConnectChecksTheSchema(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Redis.URL = redistest.URL(t)
	client := testutil.Must(Connect(t.Context(), cfg))(t)
	defer client.Close()
	if v, err := NewStore(client, nil).Version(t.Context()); err != nil || v != len(migrations) {
		t.Errorf("fresh store: got schema %d, %v, want %d", v, err, len(migrations))
	}
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:schema", "version", 1000).Err())
	if _, err := Connect(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "upgrade this program") {
		t.Errorf("newer store: got %v, want that this program must be upgraded", err)
	}
}

// The states in the setting jobs.keep_for match the package jobs.
func TestSettingNamesAllStatesOfJobs(t *testing.T) {
	t.Parallel()
	var done []string
	for _, st := range jobs.Statuses {
		if st.Terminal() {
			done = append(done, string(st))
		}
	}
	if !slices.Equal(config.JobStates, done) {
		t.Errorf("states: got %v, want %v", config.JobStates, done)
	}
}

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

// Agents send three heartbeats per lease and are healthy, however long the lease is.
func TestAgentsOfLongLeasesAreHealthy(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t)
	client := tasks.NewClient(rdb)
	t.Cleanup(func() { _ = client.Close() })
	all := testutil.Must(jobs.New(jobs.Config{Client: client}))(t)
	agents := testutil.Must(agent.New(agent.Config{Client: client, Jobs: all}))(t)
	a, _, err := agents.Register(t.Context(), agent.Registration{Name: "one", Roles: []string{"creator"}})
	testutil.Ok(t, err)
	seen := redis.Z{Member: a.ID, Score: float64(time.Now().Add(-2 * time.Minute).UnixMilli())}
	testutil.Ok(t, rdb.ZAdd(t.Context(), "muster:{agents}:seen", seen).Err())
	for lease, want := range map[time.Duration]string{30 * time.Second: agent.StateUnavailable, 5 * time.Minute: agent.StateHealthy} {
		cfg := settings(t)
		cfg.Jobs.Lease = lease
		system := testutil.Must(NewSystem(cfg, client, slog.New(slog.DiscardHandler)))(t)
		got, err := system.Agents.List(t.Context())
		if err != nil || len(got) != 1 || got[0].State != want {
			t.Errorf("lease %v: got %+v, %v, want it %s", lease, got, err, want)
		}
	}
}

// A program that has only asynq's client starts a scrape and a refresh, and learns of unusable payloads at once.
func TestAsynqClientsStartScrapesAndRefreshes(t *testing.T) {
	t.Parallel()
	cfg, _ := worldSettings(t)
	w := serveSystemWith(t, cfg, slog.New(slog.DiscardHandler))
	rdb := w.system.Client.Redis()
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	for _, c := range []struct {
		kind, payload string
		state         asynq.TaskState
		says          string // part of the result or of the error
	}{
		{"muster:scrape", `{"site": "shop", "limit": 1}`, asynq.TaskStateCompleted, "shop"},
		{"muster:refresh", "", asynq.TaskStateCompleted, ""},
		{"muster:scrape", `{"site": "nowhere.example"}`, asynq.TaskStateArchived, "nowhere.example"},
		{"muster:scrape", `{"site": "shop", "limits": 1}`, asynq.TaskStateArchived, `unknown field "limits"`},
		{"muster:scrape", `{"site": "shop", "limit": -1}`, asynq.TaskStateArchived, "limit: must not be negative"},
		{"muster:scrape", ``, asynq.TaskStateArchived, "payload of muster:scrape"},
	} {
		sent := testutil.Must(client.Enqueue(asynq.NewTask(c.kind, []byte(c.payload)), asynq.Retention(time.Hour)))(t)
		testutil.Eventually(t, fmt.Sprintf("%s %s has the state %v and %q", c.kind, c.payload, c.state, c.says), func() bool {
			info, err := inspector.GetTaskInfo("default", sent.ID)
			return err == nil && info.State == c.state && strings.Contains(string(info.Result)+info.LastErr, c.says)
		})
	}
}
