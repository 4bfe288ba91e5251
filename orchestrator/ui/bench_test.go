package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/tasks"
)

// openTime is the time for which a page is open.
const openTime = 20 * time.Second

// BenchmarkOpenPages opens each kind of page of a system, with one reader, and one page and all pages with a hundred. It reports the commands of
// Redis per second, including those in scripts, and the traffic per second from Redis and to the readers.
func BenchmarkOpenPages(b *testing.B) {
	w := newSystem(b)
	w.addProxies(2000)
	ctx, client := b.Context(), w.cfg.Client
	one, bad := tasks.New[int, int]("shop.one"), tasks.New[int, int]("shop.bad", tasks.MaxRetry(0))
	waits := tasks.New[int, int]("shop.waits", tasks.External())
	mux := tasks.NewMux()
	tasks.Handle(mux, one, func(_ context.Context, n int) (int, error) { return n + 1, nil })
	tasks.Handle(mux, bad, func(_ context.Context, n int) (int, error) { return 0, fmt.Errorf("no stock of %d", n) })
	worker := testutil.Must(tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Queues: map[string]int{"default": 1, "slow": 1, "fast": 1}}))(b)
	var flow string
	for i := range 200 {
		run, err := tasks.Chain(one.S(i), one).Send(ctx, client, tasks.Labels(map[string]string{"customer": strconv.Itoa(i % 7)}))
		if i%10 == 0 {
			_, err = bad.S(i).Send(ctx, client)
		}
		testutil.Ok(b, err)
		if i > 190 {
			_, _ = run.Wait(ctx)
		}
	}
	for range 20 {
		run := testutil.Must(tasks.Chain(waits.S(1), one).Send(ctx, client))(b)
		flow = run.ID()
	}
	jw := &world{Service: w.cfg.Jobs, t: b, ctx: ctx}
	for range 40 {
		jw.create(pipeline.Default, "p")
	}
	list := testutil.Must(w.cfg.Jobs.List(ctx, jobs.Filter{Limit: 1}))(b)
	job := "/ui/jobs/" + list.Jobs[0].ID
	nodes := testutil.Must(client.Workflow(flow).Nodes(ctx))(b)
	if err := worker.Stop(); err != nil { // only pages send commands now
		b.Fatal(err)
	}
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mux.ServeHTTP(rw, r.WithContext(access.WithCaller(r.Context(), access.Caller{Name: "ada", ID: "k1", Role: access.Admin})))
	})
	var all []string
	for _, path := range []string{
		"/ui/", "/ui/tasks/", "/ui/tasks/workflows", "/ui/tasks/workflows/" + flow, "/ui/tasks/workflows/" + flow + "/nodes/" + nodes[0].ID, "/ui/tasks/names",
		"/ui/tasks/names/shop.bad", "/ui/tasks/todo", "/ui/tasks/queues", "/ui/tasks/queues/default", "/ui/tasks/workers", "/ui/tasks/schedule",
		"/ui/jobs", job, job + "/items", "/ui/sites", "/ui/sites/shop.example", "/ui/scrapes", "/ui/scrapes/" + w.scrape,
		"/ui/proxies", "/ui/proxies/sources",
	} {
		name := strings.NewReplacer(flow, "ID", list.Jobs[0].ID, "ID", w.scrape, "ID", "/ui/", "", "/", ".").Replace(path)
		b.Run(strings.TrimPrefix(name, ".")+"/readers=1", func(b *testing.B) { w.measure(b, h, openTime, 1, path) })
		all = append(all, path)
	}
	b.Run("one page/readers=100", func(b *testing.B) { w.measure(b, h, openTime, 100, all[1]) })
	b.Run("all pages/readers=100", func(b *testing.B) { w.measure(b, h, 3*openTime, 100, all...) })
}

// measure opens pages with a number of readers in total, and reports the load of their polls.
func (w *system) measure(b *testing.B, h http.Handler, open time.Duration, readers int, paths ...string) {
	for b.Loop() {
		var before, beforeSent int64
		page, polls := openPages(b, h, readers, open, func() { before, beforeSent = w.load(b) }, paths...)
		after, sent := w.load(b)
		seconds := open.Seconds()
		b.ReportMetric(float64(after-before)/seconds, "commands/s")
		b.ReportMetric(float64(sent-beforeSent)/seconds/1000, "kB/s-from-redis")
		b.ReportMetric(float64(polls)/seconds/1000/float64(readers), "kB/s-per-reader")
		b.ReportMetric(float64(page)/1000, "kB-per-page")
		b.ReportMetric(0, "ns/op")
	}
}

// load returns the number of commands that the Redis of a system has processed and of bytes that it has sent.
func (w *system) load(b *testing.B) (commands, sent int64) {
	b.Helper()
	info, err := w.server.Client().InfoMap(b.Context(), "stats").Result()
	testutil.Ok(b, err)
	if commands, err = strconv.ParseInt(info["Stats"]["total_commands_processed"], 10, 64); err != nil {
		b.Fatal(err)
	}
	if sent, err = strconv.ParseInt(info["Stats"]["total_net_output_bytes"], 10, 64); err != nil {
		b.Fatal(err)
	}
	return commands, sent
}

// openPages opens pages like browsers, with a number of readers in total, who poll for a time as live.js does, and calls opened before their first
// poll. It returns the compressed size of the largest page and of all responses to polls.
func openPages(tb testing.TB, h http.Handler, readers int, d time.Duration, opened func(), paths ...string) (page, polls int64) {
	tb.Helper()
	ctx := tb.Context()
	var total atomic.Int64
	get := func(path, tag string) http.Header {
		r := httptest.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch {
		case w.Code != http.StatusOK && w.Code != http.StatusNotModified:
			tb.Errorf("%s: got %d %.500s", path, w.Code, w.Body)
		case tag == "":
			page = max(page, int64(w.Body.Len()))
		default:
			total.Add(int64(w.Body.Len()))
		}
		return w.Header()
	}
	for _, path := range paths {
		get(path, "")
	}
	opened()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var open sync.WaitGroup
	for i := range readers {
		open.Go(func() {
			path, tag, unchanged := paths[i%len(paths)], "none", 0
			pause := time.Second + time.Second*time.Duration(i)/time.Duration(readers)
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(pause):
				}
				h := get(path, tag)
				if h.Get("ETag") != tag {
					tag, unchanged = h.Get("ETag"), 0
				} else {
					unchanged++
				}
				interval, _ := strconv.Atoi(h.Get("X-Poll-Interval"))
				pause = max(time.Duration(interval)*time.Second, min(time.Second+time.Duration(unchanged)*100*time.Millisecond, 2*time.Second))
			}
		})
	}
	open.Wait()
	return page, total.Load()
}
