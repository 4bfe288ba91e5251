package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/proxies"
	"muster/proxies/probe"
	"muster/proxies/proxytest"
	"muster/proxies/source"
	"muster/tasks"
)

// checked are the values of a large check.
type checked struct {
	took, ideal time.Duration
	megabytes   float64
	wrong       int
}

// checkTenThousand checks 10,000 candidates: 2 % alive after 50 to 800 ms, 30 % refused, 68 % that never answer the
// TCP handshake, a thousand at once.
func checkTenThousand(ctx context.Context, _ *lab) (checked, error) {
	const concurrency, connectTimeout = 1000, 2 * time.Second
	judge, err := probe.StartJudge(probe.JudgeConfig{Key: "bench"})
	if err != nil {
		return checked{}, err
	}
	defer judge.Close()
	silent, err := listenDeaf()
	if err != nil {
		return checked{}, err
	}
	defer silent.close()

	random := rand.New(rand.NewPCG(1, 2))
	var candidates []source.Candidate
	alive := map[string]netip.Addr{}
	var work time.Duration
	for i := range 200 {
		delay := 50*time.Millisecond + time.Duration(random.IntN(750))*time.Millisecond
		p, err := proxytest.Start(proxytest.Options{Kind: proxytest.Elite, Exit: proxytest.ExitAddress(i), Delay: delay})
		if err != nil {
			return checked{}, err
		}
		defer p.Close()
		pair := netip.MustParseAddrPort(p.URL.Host)
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: pair.Addr().String(), Port: pair.Port()})
		alive[p.URL.Host] = p.Exit
		work += 2 * delay // the first answer, and then all others at once
	}
	for i := range 3000 { // no process listens there
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: proxytest.ExitAddress(i).String(), Port: 9})
	}
	for i := range 6800 {
		candidates = append(candidates, source.Candidate{Protocol: "http", Host: proxytest.ExitAddress(i).String(), Port: silent.port})
		work += connectTimeout
	}
	random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })

	prober, err := probe.New(probe.Config{Judges: judge.URLs, Key: "bench", Concurrency: concurrency, ConnectTimeout: connectTimeout})
	if err != nil {
		return checked{}, err
	}
	out := checked{ideal: work / concurrency}
	peak := watchMemory()
	began := time.Now()
	seen := 0
	err = prober.Each(ctx, slices.Values(candidates), func(r probe.Result) {
		seen++
		exit, good := alive[r.Candidate.Address()]
		if r.Alive != good || good && r.Exit != exit {
			out.wrong++
		}
	})
	out.took = time.Since(began)
	out.megabytes = peak() / (1 << 20)
	if err == nil && seen != len(candidates) {
		err = fmt.Errorf("got %d of %d candidates reported", seen, len(candidates))
	}
	return out, err
}

// watchMemory samples the memory of the process until peak is called, which returns the most, in bytes.
func watchMemory() (peak func() float64) {
	var most float64
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
			metrics.Read(sample)
			most = max(most, float64(sample[0].Value.Uint64()))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	return func() float64 {
		close(stop)
		watch.Wait()
		return most
	}
}

// chunkTime is how long the check of a chunk takes in chordOfChunks.
const chunkTime = 2 * time.Second

// chordOfChunks runs a refresh of 40 chunks of 100 on 8 workers, whose checks take chunkTime each.
func chordOfChunks(ctx context.Context, l *lab) (float64, error) {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var list strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&list, "http://%s:9\n", proxytest.ExitAddress(i))
	}
	file := filepath.Join(dir, "list.txt")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return 0, err
	}

	client := tasks.NewClient(l.rdb)
	defer client.Close()
	pool := proxies.NewPool(proxies.PoolConfig{Redis: l.rdb})
	defer pool.Close()
	service, err := proxies.NewService(proxies.Config{Pool: pool})
	if err != nil {
		return 0, err
	}
	mux := tasks.NewMux()
	service.RegisterAround(mux, func(ctx context.Context, chunk []proxies.Candidate) (proxies.Tally, error) {
		if len(chunk) != proxies.ChunkSize {
			return proxies.Tally{}, fmt.Errorf("got a chunk of %d, want %d", len(chunk), proxies.ChunkSize)
		}
		select {
		case <-time.After(chunkTime):
			return proxies.Tally{Checked: len(chunk), Alive: 2, Accepted: 2, Usable: 2}, nil
		case <-ctx.Done():
			return proxies.Tally{}, ctx.Err()
		}
	})
	_, stop, err := startWorker(ctx, client, mux, tasks.WorkerConfig{Queues: map[string]int{"probe": 1}, Concurrency: 8})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	report, err := sendWait(ctx, client, service.Refresh(ctx, source.Source{URL: file, AllowLocal: true}), tasks.ProgressKeys(proxies.ProgressPrefix))
	took := time.Since(began)
	if err = errors.Join(err, stop()); err == nil && report.Checked != 4000 {
		err = fmt.Errorf("got %d of 4000 checked", report.Checked)
	}
	return took.Seconds(), err
}

// pickAndReport is how many picks a second 8 goroutines make from a pool of 100,000, with a report for each.
func pickAndReport(ctx context.Context, l *lab) (float64, error) {
	const members, picks, goroutines = 100_000, 100_000, 8
	pool := proxies.NewPool(proxies.PoolConfig{Redis: l.rdb})
	defer pool.Close()
	for chunk := range slices.Chunk(seq(members), 5000) {
		var list []proxies.Proxy
		for _, i := range chunk {
			list = append(list, proxies.Proxy{Protocol: "http", Host: fmt.Sprintf("8.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 8080, LatencyMS: float64(50 + i%2000), Anonymity: probe.Elite})
		}
		if _, err := pool.Add(ctx, list...); err != nil {
			return 0, err
		}
	}
	lease, err := pool.Pick(ctx, proxies.PickOptions{Site: "shop"}) // reads the pool
	if err != nil {
		return 0, err
	}
	lease.Release()

	began := time.Now()
	var group errgroup.Group
	for range goroutines {
		group.Go(func() error {
			for i := range picks / goroutines {
				lease, err := pool.Pick(ctx, proxies.PickOptions{Site: "shop"})
				if err != nil {
					return err
				}
				outcome := proxies.Succeeded
				if i%50 == 0 {
					outcome = proxies.Banned
				}
				lease.Report(outcome, 120*time.Millisecond)
			}
			return nil
		})
	}
	err = errors.Join(group.Wait(), pool.Flush(ctx))
	return picks / time.Since(began).Seconds(), err
}
