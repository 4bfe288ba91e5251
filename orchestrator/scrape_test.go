package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/config"
	"muster/orchestrator/monitor"
	"muster/orchestrator/redisd"
	"muster/sites"
	"muster/sites/definition"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/workqueue"
)

// The progress shows fetched, failed and queued pages, records, the remaining time at the rate of this run, in which the
// pages of a job that it continues do not count, and the reason why a job waits.
func TestLiveProgressShowsPagesRecordsAndState(t *testing.T) {
	t.Parallel()
	pages := workqueue.Stats{Total: 160, Done: 58, Skipped: 1, Error: 1, Queued: 98, InProgress: 2}
	delayed := workqueue.Stats{Total: 60, Done: 58, Queued: 2, Delayed: 2}
	for _, c := range []struct {
		job         sites.Job
		done        int64
		note, brief string
	}{
		{sites.Job{Status: sites.JobRunning, Pages: pages, Records: map[string]int{"a": 7, "b": 5}}, 20, "58 ok, 1 errors, 100 queued, 12 records, 2.0/s, 50s left", "58 ok 1 err 100 q 12 rec 2.0/s 50s"},
		{sites.Job{Status: sites.JobRunning, Pages: pages}, 0, "58 ok, 1 errors, 100 queued, 0 records, 0.0/s", "58 ok 1 err 100 q 0 rec 0.0/s"},
		{sites.Job{Status: sites.JobRunning, Pages: workqueue.Stats{Total: 60, Done: 60}}, 20, "60 ok, 0 errors, 0 queued, 0 records, 2.0/s", "60 ok 0 err 0 q 0 rec 2.0/s"},
		{sites.Job{Status: sites.JobPaused, Pages: pages}, 20, "paused, 58 ok, 1 errors, 100 queued, 0 records, 2.0/s, 50s left", "paused 58 ok 1 err 100 q 0 rec 2.0/s 50s"},
		{sites.Job{Status: sites.JobRunning, Pages: delayed}, 20, "waits to retry, 58 ok, 0 errors, 2 queued (2 delayed), 0 records, 2.0/s", "waits to retry 58 ok 0 err 2 q 0 rec 2.0/s"},
		{sites.Job{Status: sites.JobRunning, Pages: delayed, Delays: map[string]int{"pace": 2, "site down": 15}}, 20, "waits: site down, pace, 58 ok, 0 errors, 2 queued (2 delayed), 0 records, 2.0/s", "waits: site down, pace 58 ok 0 err 2 q 0 rec 2.0/s"},
		{sites.Job{Status: sites.JobWaiting, WaitsFor: []string{"a.example"}}, 20, "waits for a.example, 0 ok, 0 errors, 0 queued, 0 records, 2.0/s", "waits for a.example 0 ok 0 err 0 q 0 rec 2.0/s"},
		{sites.Job{Status: sites.JobWaiting}, 20, "waits for a worker, 0 ok, 0 errors, 0 queued, 0 records, 2.0/s", "waits for a worker 0 ok 0 err 0 q 0 rec 2.0/s"},
	} {
		p := live(c.job, c.done, 10*time.Second)
		if p.Note != c.note || p.Brief != c.brief {
			t.Errorf("%s: got %q and %q, want %q and %q", c.job.Status, p.Note, p.Brief, c.note, c.brief)
		}
	}
}

// A scrape that was sent without proxies is direct on workers without proxies only. A scrape with the option Direct is
// direct on all workers.
func TestDirectScrapeOnWorkersOfOtherSettings(t *testing.T) {
	t.Parallel()
	sources := func(p *config.Proxies) { p.Sources = config.SourcesAt("list.txt") }
	for name, c := range map[string]struct {
		worker func(*config.Proxies)
		asked  bool
		want   string // status
	}{
		"a worker without proxies goes direct":   {func(*config.Proxies) {}, false, report.StatusComplete},
		"a worker with sources does not":         {sources, false, sites.JobFailed},
		"a worker with fallback fail does not":   {func(p *config.Proxies) { p.Fallback = "fail" }, false, sites.JobFailed},
		"a worker with sources does with Direct": {sources, true, report.StatusComplete},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("<h1>A thing</h1><p>Some words about the thing.</p>"))
			}))
			sender := settings(t)
			sender.Redis.Mode, sender.Redis.URL = string(redisd.External), redistest.Server(t).URL()
			sender.Sites.Dir = t.TempDir()
			definition := "site: toy\nbase_url: " + site.URL + "\nstart: [/]\nretries: {attempts: 0, base: 100ms}\npoliteness: {robots: false}\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n"
			testutil.Ok(t, os.WriteFile(filepath.Join(sender.Sites.Dir, "toy.yaml"), []byte(definition), 0o600))
			worker := sender
			c.worker(&worker.Proxies)
			err := Run(t.Context(), worker, Options{}, func(ctx context.Context, w *Orchestrator) error {
				if err := w.Workers.Start(ctx); err != nil {
					return err
				}
				return Run(ctx, sender, Options{Reuse: true}, func(ctx context.Context, o *Orchestrator) error {
					scraped, err := o.Scraper.Scrape(ctx, "toy", ScrapeOptions{ScrapeOptions: sites.ScrapeOptions{Direct: c.asked}})
					if scraped.Status != c.want {
						t.Errorf("got %s (%v), want %s", scraped.Status, err, c.want)
					}
					if c.want == sites.JobFailed && (err == nil || !strings.Contains(err.Error(), "no_proxy")) {
						t.Errorf("got error %v, want no_proxy", err)
					}
					return nil
				})
			})
			testutil.Ok(t, err)
		})
	}
}

// If two sites are due at the same time, the dependent one waits for the other.
func TestScheduledScrapeWaitsForTheSiteItDependsOn(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Sites.Dir = t.TempDir()
	for site, rest := range map[string]string{"a-dependent": "depends_on: [z-first]\n", "z-first": ""} {
		definition := "site: " + site + "\nbase_url: http://127.0.0.1:1\nstart: [/]\nrecords:\n  thing: {from: listing, fields: {name: h1}}\n" + rest
		testutil.Ok(t, os.WriteFile(filepath.Join(cfg.Sites.Dir, site+".yaml"), []byte(definition), 0o600))
	}
	cfg.Sites.Schedule = map[string]string{"a-dependent": "@every 1s", "z-first": "@every 1s"}
	err := Run(t.Context(), cfg, Options{}, func(ctx context.Context, o *Orchestrator) error {
		for _, site := range []string{"a-dependent", "z-first", "a-dependent"} { // without workers, sent jobs stay queued
			if _, err := o.scrapeAt(ctx, site, time.UnixMilli(5000)); err != nil {
				return err
			}
		}
		for site, waitsFor := range map[string]string{"a-dependent": "z-first", "z-first": ""} {
			jobs, err := o.Sites.Jobs(ctx, site, 9)
			if err != nil || len(jobs) != 1 || strings.Join(jobs[0].WaitsFor, " ") != waitsFor || !strings.HasSuffix(jobs[0].ID, "_5000") {
				t.Errorf("got the jobs %+v of %s, %v, want one that waits for %q", jobs, site, err, waitsFor)
			}
		}
		return nil
	})
	testutil.Ok(t, err)
}

// The progress of a refresh counts individual candidates while some of them do not respond.
func TestRefreshProgressCountsProbes(t *testing.T) {
	t.Parallel()
	cfg, world := worldSettings(t)
	cfg.Proxies.Sources, cfg.Proxies.CheckTimeout = config.SourcesAt(world.Sources...), 5*time.Second
	var out bytes.Buffer
	display := monitor.New(&out, monitor.Lines)
	err := Run(t.Context(), cfg, Options{Display: display}, func(ctx context.Context, o *Orchestrator) error {
		_, err := o.Proxies.Refresh(ctx)
		return err
	})
	display.Close()
	testutil.Ok(t, err)
	partly := 0
	for _, m := range regexp.MustCompile(`(?m)^\[PROGRESS\] .*: (\d+)/(\d+) (\w+)`).FindAllStringSubmatch(out.String(), -1) {
		if m[2] != fmt.Sprint(len(world.Proxies)) || m[3] != "proxies" {
			t.Errorf("got a total of %s %s, want %d proxies", m[2], m[3], len(world.Proxies))
		}
		if m[1] != "0" && m[1] != m[2] {
			partly++
		}
	}
	if partly == 0 {
		t.Errorf("got no line with partial progress, want at least one:\n%s", out.String())
	}
}

// The browser of this machine reaches the pool through a gateway that knows its visitors. One on another machine gets no proxy.
func TestBrowserProxyIsAGateway(t *testing.T) {
	t.Parallel()
	site := testutil.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }))
	cfg := settings(t)
	cfg.Network.Allow = []string{"127.0.0.1"}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s := testutil.Must(NewSystem(cfg, client, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { _ = s.Close() })
	through := func(fallback, visitor string) (at *url.URL, status int) {
		text := testutil.Must(s.browserProxy(&definition.Definition{Proxy: definition.Proxy{Fallback: fallback}}, visitor))(t)
		at = testutil.Must(url.Parse(text))(t)
		carrier := &http.Transport{Proxy: http.ProxyURL(at)}
		defer carrier.CloseIdleConnections()
		res := testutil.Must((&http.Client{Transport: carrier}).Get(site.URL))(t)
		_ = res.Body.Close()
		return at, res.StatusCode
	}
	one, status := through("direct", "ONE")
	two, _ := through("direct", "TWO")
	other, fails := through("fail", "ONE")
	if one.Host != two.Host || one.User.Username() != "muster-session-ONE" || two.User.Username() != "muster-session-TWO" || other.Host == one.Host {
		t.Errorf("got %s, %s and %s, want a gateway for each fallback, with the visitor in the user name", one, two, other)
	}
	if status != http.StatusOK || fails != http.StatusServiceUnavailable {
		t.Errorf("got the status %d, and %d without a fallback, want 200 and 503", status, fails)
	}
	changed := s.Config()
	changed.Sites.Browser = "http://chrome.example:9222"
	s.settings.Store(&changed)
	if at, err := s.browserProxy(&definition.Definition{}, "ONE"); at != "" || err != nil {
		t.Errorf("got %q, %v for a browser on another machine, want no proxy", at, err)
	}
}
