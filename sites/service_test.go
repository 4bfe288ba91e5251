package sites

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
)

// newService returns a service on rdb that does not run.
func newService(t *testing.T, rdb redis.UniversalClient) *Service {
	t.Helper()
	return configured(t, rdb, nil, Config{})
}

// configured is newService with a configuration without a client and a directory.
func configured(t *testing.T, rdb redis.UniversalClient, registry *Registry, cfg Config) *Service {
	t.Helper()
	cfg.Client, cfg.OutDir = tasks.NewClient(rdb), t.TempDir()
	t.Cleanup(func() { _ = cfg.Client.Close() })
	s, err := NewService(registry, cfg)
	testutil.Ok(t, err)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	return s
}

// begin stores the request of a job that no worker has started.
func begin(t *testing.T, s *Service, id string, def *definition.Definition, o ScrapeOptions) store.Request {
	t.Helper()
	req, err := s.request(t.Context(), def, o)
	if err == nil {
		err = errors.Join(store.AddJob(t.Context(), s.cfg.Client.Redis(), id, req), store.Open(t.Context(), s.cfg.Client.Redis(), id))
	}
	testutil.Ok(t, err)
	return req
}

// scrape scrapes a site with a worker that runs until the test ends.
func scrape(t *testing.T, s *Service, id string, def *definition.Definition, o ScrapeOptions) report.Summary {
	t.Helper()
	work(t, s.cfg.Client, s)
	run, err := store.Scrape(begin(t, s, id, def, o)).Send(t.Context(), s.cfg.Client, tasks.ID(id))
	testutil.Ok(t, err)
	sum, err := run.Wait(t.Context())
	testutil.Ok(t, err)
	return sum
}

// work runs a worker until the test ends.
func work(t *testing.T, client *tasks.Client, s *Service) {
	t.Helper()
	mux := tasks.NewMux()
	s.Register(mux)
	w, err := tasks.NewWorker(client, mux, tasks.WorkerConfig{Queues: map[string]int{Queue: 1}, Concurrency: 4, Grace: 5 * time.Second})
	testutil.Ok(t, err)
	t.Cleanup(func() { testutil.Ok(t, s.Close()) })
	testutil.Background(t, s.Run)
	testutil.Background(t, w.Run)
}
