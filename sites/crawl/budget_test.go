package crawl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/sites/definition"
	"muster/sites/internal/sitetest"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// A job that reaches max_records is complete, reports the limit, and marks no unseen records as gone.
func TestMaxRecords(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 4, 5)
	s := newWorker(t, redistest.New(t))
	if sum := run(t, begin(t, s, "all", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})); sum.Records != 40 || len(sum.Limits) != 0 {
		t.Fatalf("without limits: got %+v, want 40 records", sum)
	}
	sum := run(t, begin(t, s, "some", site.Definition(t, "limits: {max_records: 7}\n"), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusComplete || sum.Records != 7 || sum.Extracted != 7 || sum.Changes.Gone != 0 || len(sum.Missing) != 0 {
		t.Errorf("got %+v, want COMPLETE with 7 records, none gone or missing", sum)
	}
	if len(sum.Limits) != 1 || !strings.Contains(sum.Text(), "limits.max_records (7) was reached; there may be more") || !sum.Health.Limited {
		t.Errorf("got limits %v, want max_records in this text:\n%s", sum.Limits, sum.Text())
	}
	if asked, _ := site.Counts("/page/4"); asked != 1 {
		t.Errorf("got %d requests for the last page, want 1: the second is beyond the limit", asked)
	}
	sum = run(t, begin(t, s, "limited", site.Definition(t, "limits: {max_records: 7}\n"), ScrapeOptions{BaseURL: site.URL, Limit: 4}))
	if sum.Status != report.StatusComplete || sum.Records != 4 || sum.Changes.Gone != 0 || fmt.Sprint(sum.Limits) != "[the limit of the scrape (4) was reached]" {
		t.Errorf("with a limit of the scrape: got %+v, want COMPLETE with 4 records", sum)
	}
}

// A job that reaches max_total_bytes starts no more pages.
func TestMaxTotalBytes(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 2, 10)
	s := newWorker(t, redistest.New(t))
	sum := run(t, begin(t, s, "j1", site.Definition(t, "limits: {max_total_bytes: 3KiB}\n"), ScrapeOptions{BaseURL: site.URL}))
	if sum.Status != report.StatusIncomplete || sum.Bytes < 3<<10 || sum.Skipped != 0 || sum.Pages > 12 || sum.Pages == 0 {
		t.Errorf("got %+v, want INCOMPLETE with 1 to 12 pages of at least 3 KiB", sum)
	}
	if want := fmt.Sprintf("limits.max_total_bytes (3072) was reached, with %d bytes: ", sum.Bytes); len(sum.Missing) != 1 || !strings.HasPrefix(sum.Missing[0], want) {
		t.Errorf("got missing %v, want one with %q", sum.Missing, want)
	}
}

// A page that is counted twice, as after a crash, counts once.
func TestBudgetCountsAPageOnce(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBudget(rdb, "j1", definition.Limits{MaxRecords: 5}, 0)
		for i, step := range []struct {
			page          string
			records, want int
			over          bool
		}{{"a", 3, 3, false}, {"a", 3, 3, false}, {"b", 4, 2, true}, {"b", 4, 2, true}, {"c", 1, 0, true}, {"a", 3, 3, true}} {
			got, err := b.grant(t.Context(), step.page, step.records, 10)
			if err != nil || got != step.want {
				t.Fatalf("step %d: got %d, %v; want %d", i, got, err, step.want)
			}
			if reached, err := b.reached(t.Context()); err != nil || (len(reached) > 0) != step.over {
				t.Fatalf("step %d: got %v, error %v, want any: %v", i, reached, err, step.over)
			}
		}
	})
}
