package sites

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks"
	"muster/tasks/redistest"
)

// behind is the definition of a site that depends on shop.example.
func behind(t *testing.T, site *shop) *definition.Definition {
	t.Helper()
	yaml := strings.Replace(string(site.definition(t, "").YAML()), "site: shop.example", "site: behind.example\ndepends_on: [shop.example]", 1)
	def, err := definition.Parse("behind.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// A scrape waits for the one of a site that it depends on, whatever becomes of
// the processes, and fetches nothing until that is complete.
func TestDependentScrapeWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		list string                            // the faults of a listing page of the other
		end  func(s *Service, id string) error // of the scrape that the other depends on
		want string                            // the status of the other
		says string
	}{
		"until the other is complete": {"", nil, report.StatusComplete, ""},
		"and fails when the other is incomplete": {strings.Repeat("500 ", 9), nil, JobFailed,
			"not started: it depends on shop.example, whose job %s ended as INCOMPLETE"},
		"and fails when the other is canceled": {"", func(s *Service, id string) error { return s.Cancel(context.Background(), id) }, JobFailed,
			"not started: it depends on shop.example, whose job %s ended as CANCELED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newShop(t, 2, 3), newShop(t, 1, 3)
			first.faults = map[string][]string{"/item/1": {"hang"}, "/page/2": strings.Fields(c.list)}
			client := tasks.NewClient(redistest.New(t))
			t.Cleanup(func() { _ = client.Close() })
			registry := NewRegistry(first.definition(t, ""), behind(t, second))
			dir := t.TempDir()
			service := func() *Service {
				s, err := NewService(Config{Client: client, OutDir: dir, Registry: registry})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			sender := service()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			a, err := sender.Send(ctx, "shop.example", ScrapeOptions{BaseURL: first.URL})
			if err != nil {
				t.Fatal(err)
			}
			b, err := sender.Send(ctx, "behind.example", ScrapeOptions{BaseURL: second.URL})
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.Close(); err != nil { // what it knew is gone
				t.Fatal(err)
			}
			sent, err := store.ReadRequest(ctx, sender.cfg.Client.Redis(), b.ID())
			if err != nil {
				t.Fatal(err)
			}

			s := service()
			work(t, client, s)
			select {
			case <-first.hangs:
			case <-ctx.Done():
				t.Fatal("no page of the first site is asked for")
			}
			testutil.Eventually(t, "a worker puts the second job off", func() bool {
				nodes, err := client.Due(ctx, 10)
				for _, n := range nodes {
					if err == nil && n.Workflow == b.ID() {
						return true
					}
				}
				return false
			})
			j, err := s.Job(ctx, b.ID())
			if err != nil || j.Status != JobWaiting || fmt.Sprint(j.WaitsFor) != "[shop.example]" {
				t.Errorf("while the first runs: got %s, waits for %v, error %v; want WAITING for [shop.example]", j.Status, j.WaitsFor, err)
			}
			if asked, _ := second.counts("/"); asked != 0 {
				t.Errorf("while the first runs: the second site was asked for its first page %d times, want 0", asked)
			}

			if c.end != nil {
				if err := c.end(s, a.ID()); err != nil {
					t.Fatal(err)
				}
			}
			close(first.hang)
			_, err = b.Wait(ctx)
			if c.says != "" {
				if want := fmt.Sprintf(c.says, a.ID()); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want %q", err, want)
				}
			} else if err != nil {
				t.Error(err)
			}
			if j, err = s.Job(ctx, b.ID()); err != nil || j.Status != c.want || len(j.WaitsFor) != 0 {
				t.Errorf("in the end: got %s, waits for %v, error %v; want %s and nothing", j.Status, j.WaitsFor, err, c.want)
			}
			if asked, _ := second.counts("/"); (asked > 0) != (c.want == report.StatusComplete) {
				t.Errorf("in the end: the second site was asked for its first page %d times, and its job is %s", asked, c.want)
			}
			if c.want == report.StatusComplete && !j.Began.After(time.UnixMilli(sent.Began)) {
				t.Errorf("its time counts from %s, when it was sent; want it to count from when it began", j.Began)
			}
		})
	}
}

// A scrape does not wait for one that is over, unless it is named: such as one
// of the same round.
func TestDependentScrapeHeedsTheJobsOfItsRound(t *testing.T) {
	t.Parallel()
	first, second := newShop(t, 1, 1), newShop(t, 1, 1)
	first.faults = map[string][]string{"/": strings.Fields(strings.Repeat("500 ", 9))}
	client := tasks.NewClient(redistest.New(t))
	t.Cleanup(func() { _ = client.Close() })
	s, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(first.definition(t, ""), behind(t, second))})
	if err != nil {
		t.Fatal(err)
	}
	work(t, client, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := s.Send(ctx, "shop.example", ScrapeOptions{BaseURL: first.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Wait(ctx); err == nil {
		t.Fatal("the first scrape succeeded")
	}
	b, err := s.Send(ctx, "behind.example", ScrapeOptions{BaseURL: second.URL, After: map[string]string{"shop.example": a.ID()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(ctx); err == nil || !strings.Contains(err.Error(), a.ID()+" ended as FAILED") {
		t.Errorf("with the job named: got error %v, want that it ended as FAILED", err)
	}
	if b, err = s.Resume(ctx, b.ID()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(ctx); err != nil {
		t.Errorf("tried again: got error %v, want none", err)
	}
	if b, err = s.Send(ctx, "behind.example", ScrapeOptions{BaseURL: second.URL}); err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		t.Fatal(err)
	}
	if _, err := b.Wait(ctx); err != nil {
		t.Errorf("alone: got error %v, want none", err)
	}
}
