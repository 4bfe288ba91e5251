// Package crawlbench compares scrapes with crawls by colly in one run. It is a separate module, so that the main module does not
// depend on colly.
package crawlbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gocolly/colly/v2"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/sites"
	"muster/sites/definition"
	"muster/tasks"
)

const (
	pages, perList = 2000, 50
	atOnce         = 8
	took           = 10 * time.Millisecond
	serve          = "CRAWLBENCH_SERVE" // environment variable of the server process
)

func TestMain(m *testing.M) {
	if os.Getenv(serve) == "" {
		redistest.Main(m)
	}
	site := httptest.NewServer(http.HandlerFunc(page))
	fmt.Println(site.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark exits
}

// page serves listing pages /list/N, their detail pages /item/N, and a binary tree of detail pages /p/N.
func page(w http.ResponseWriter, r *http.Request) {
	time.Sleep(took)
	var n int
	words := strings.Repeat("words ", 40)
	switch {
	case scan(r, "/list/%d", &n):
		for i := range perList - 1 {
			fmt.Fprintf(w, `<a class=item href="/item/%d">item</a>`, n*perList+i)
		}
		if (n+1)*perList < pages {
			fmt.Fprintf(w, `<a class=next href="/list/%d">next</a>`, n+1)
		}
	case scan(r, "/item/%d", &n):
		fmt.Fprintf(w, "<html><h1>Page %d</h1><p>%s</p>", n, words)
	case scan(r, "/p/%d", &n):
		fmt.Fprintf(w, "<html><h1>Page %d</h1><p>%s</p>", n, words)
		for _, child := range []int{2 * n, 2*n + 1} {
			if child <= pages {
				fmt.Fprintf(w, `<a class=item href="/p/%d">child</a>`, child)
			}
		}
	}
}

func scan(r *http.Request, format string, n *int) bool {
	_, err := fmt.Sscanf(r.URL.Path, format, n)
	return err == nil
}

// startSite serves the pages in a separate process, whose CPU time is not counted.
func startSite(b *testing.B) (url string) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), serve+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	out, oerr := cmd.StdoutPipe()
	if err := errors.Join(err, oerr); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := fmt.Fscan(out, &url); err != nil {
		b.Fatal(err)
	}
	return url
}

// BenchmarkCrawl scrapes 2,000 pages with a response time of 10 ms, eight at a time: detail pages of listing pages, and a tree of
// detail pages. of-ideal is the share of the possible rate of 800 pages/s; x-colly is the time of colly divided by the time of a
// scrape, cpu-x-colly the CPU time of this process per page divided by the CPU time of colly, and cpu-redis-x-colly the same
// including Redis.
func BenchmarkCrawl(b *testing.B) {
	for name, c := range map[string]struct{ yaml, start string }{
		"listing": {"start: [/list/0]\nlisting: {next: a.next, links: a.item}\n", "/list/0"},
		"detail":  {"start: [{url: /p/1, as: detail}]\ndetail: {links: [{css: a, as: detail}]}\n", "/p/1"},
	} {
		b.Run(name, func(b *testing.B) {
			url := startSite(b)
			def, err := definition.Parse("bench.yaml", fmt.Appendf(nil, "site: bench\nbase_url: %s\npoliteness: {delay: 0, max_per_domain: %d, robots: false}\n%s"+
				"records: {page: {key: [name], fields: {name: {css: h1, required: true}}}}\n", url, atOnce, c.yaml))
			if err != nil {
				b.Fatal(err)
			}
			rdb := redistest.Server(b).Client()
			service := startScraper(b, tasks.NewClient(rdb), def)
			ideal := float64(b.N) * float64(pages/atOnce) * took.Seconds()

			redis, cpu := redisCPU(b, rdb), processCPU()
			b.ResetTimer()
			for range b.N {
				run, err := service.Send(b.Context(), def.Site, sites.ScrapeOptions{})
				if err != nil {
					b.Fatal(err)
				}
				if sum, err := run.Wait(b.Context()); err != nil || sum.Pages != pages {
					b.Fatalf("got %d pages, error %v, want %d", sum.Pages, err, pages)
				}
			}
			b.StopTimer()
			cpu, redis = processCPU()-cpu, redisCPU(b, rdb)-redis

			ours, began := processCPU(), time.Now()
			for range b.N {
				crawlWithColly(b, url+c.start)
			}
			colly, elapsed := processCPU()-ours, time.Since(began)
			b.ReportMetric(ideal/b.Elapsed().Seconds(), "of-ideal")
			b.ReportMetric(ideal/elapsed.Seconds(), "colly-of-ideal")
			b.ReportMetric(elapsed.Seconds()/b.Elapsed().Seconds(), "x-colly")
			b.ReportMetric(cpu.Seconds()*1e6/float64(pages*b.N), "cpu-µs/page")
			b.ReportMetric(cpu.Seconds()/colly.Seconds(), "cpu-x-colly")
			b.ReportMetric((cpu+redis).Seconds()/colly.Seconds(), "cpu-redis-x-colly")
		})
	}
}

// startScraper starts a service for a site and a worker until the end of the benchmark.
func startScraper(b *testing.B, client *tasks.Client, def *definition.Definition) *sites.Service {
	b.Helper()
	s, err := sites.NewService(sites.NewRegistry(def), sites.Config{Client: client, OutDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	mux := tasks.NewMux()
	s.Register(mux)
	worker, err := tasks.StartWorker(b.Context(), client, mux, tasks.WorkerConfig{Queues: map[string]int{sites.Queue: 1}, Concurrency: atOnce})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		_ = worker.Stop()
		cancel()
		<-done
		_ = s.Close()
	})
	return s
}

// crawlWithColly crawls the same pages and extracts the same field.
func crawlWithColly(b *testing.B, start string) {
	b.Helper()
	c := colly.NewCollector(colly.Async(true))
	if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: atOnce}); err != nil {
		b.Fatal(err)
	}
	var fetched, names atomic.Int64
	c.OnResponse(func(*colly.Response) { fetched.Add(1) })
	c.OnHTML("a.item, a.next", func(e *colly.HTMLElement) { _ = e.Request.Visit(e.Attr("href")) })
	c.OnHTML("h1", func(e *colly.HTMLElement) {
		if e.Text != "" {
			names.Add(1)
		}
	})
	if err := c.Visit(start); err != nil {
		b.Fatal(err)
	}
	c.Wait()
	if fetched.Load() != pages || names.Load() < pages-pages/perList {
		b.Fatalf("colly fetched %d pages with %d names, want %d", fetched.Load(), names.Load(), pages)
	}
}

func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisCPU returns the CPU time of Redis.
func redisCPU(b *testing.B, rdb redis.UniversalClient) time.Duration {
	b.Helper()
	info, err := rdb.InfoMap(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		var s float64
		if _, err := fmt.Sscan(info["CPU"][name], &s); err != nil {
			b.Fatal(err)
		}
		sum += s
	}
	return time.Duration(sum * float64(time.Second))
}
