package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
	"muster/jobs/agent"
)

// BenchmarkListJobs lists 30 jobs that wait for agents, without agents and beside two that wait for work of 40 roles.
func BenchmarkListJobs(b *testing.B) {
	for _, agents := range []int{0, 2} {
		b.Run(fmt.Sprintf("agents=%d", agents), func(b *testing.B) {
			cfg := served(b)
			ctx, cancel := context.WithCancel(b.Context())
			var polls sync.WaitGroup
			defer polls.Wait()
			defer cancel()
			testutil.Background(b, cfg.Jobs.Run)
			testutil.Background(b, cfg.Agents.Run)
			for i := range 30 {
				_, _, err := cfg.Jobs.Create(ctx, jobs.Request{Prompt: fmt.Sprintf("Job %d", i)})
				testutil.Ok(b, err)
			}
			for i := range agents {
				roles := make([]string, 20)
				for k := range roles {
					roles[k] = fmt.Sprintf("role-%d-%d", i, k)
				}
				a, _, err := cfg.Agents.Register(ctx, agent.Registration{Name: fmt.Sprintf("agent %d", i), Roles: roles})
				testutil.Ok(b, err)
				polls.Go(func() {
					for ctx.Err() == nil {
						if _, err := cfg.Agents.Lease(ctx, a.ID, nil, 1, agent.MaxWait); err != nil && !errors.Is(err, context.Canceled) {
							b.Error(err)
						}
					}
				})
			}
			server := httptest.NewServer(handler(b, cfg))
			defer server.Close()
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				res, err := http.Get(server.URL + "/v1/jobs")
				testutil.Ok(b, err)
				body, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				took = append(took, time.Since(began))
				if n := bytes.Count(body, []byte(`"job_id"`)); err != nil || n != 30 {
					b.Fatalf("got %s with %d jobs, %v, want 30", res.Status, n, err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
