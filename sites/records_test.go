package sites

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/tasks"
	"muster/tasks/redistest"
)

// Workers without access to the records directory pass records through Redis to the process that sent the job.
func TestWorkersElsewhere(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		site := sitetest.NewShop(t, 2, 5)
		def := site.Definition(t, "")
		client := tasks.NewClient(rdb)
		t.Cleanup(func() { _ = client.Close() })
		sender, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(def)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sender.Close(); err != nil {
				t.Error(err)
			}
		})
		far, err := NewService(Config{Client: client, OutDir: t.TempDir(), Registry: NewRegistry(def)})
		if err != nil {
			t.Fatal(err)
		}
		work(t, client, far)
		ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
		defer cancel()
		res, err := sender.Send(ctx, "shop.example", ScrapeOptions{BaseURL: site.URL})
		if err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "all is fetched and waits to be written", func() bool {
			p, err := sender.Progress(ctx, "shop.example", res.ID())
			return err == nil && p.Done == 12 && p.Outputs == 20
		})
		if found, _ := filepath.Glob(filepath.Join(sender.cfg.OutDir, "*", "*", "*.jsonl")); len(found) > 0 {
			t.Errorf("got files %v by a process that does not see the folder, want none", found)
		}
		testutil.Background(t, sender.Run)
		sum, err := res.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		site.IsWhole(t, sum)
		if !strings.HasPrefix(sum.Files[0], sender.cfg.OutDir) {
			t.Errorf("got files %v, want them in %s", sum.Files, sender.cfg.OutDir)
		}
	})
}

func TestSinksAreChecked(t *testing.T) {
	t.Parallel()
	s := newService(t, redistest.New(t))
	if _, _, err := s.Scrape(t.Context(), "books.toscrape.com", ScrapeOptions{Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("Scrape with an invalid sink: got no error, want one")
	}
	if _, err := NewService(Config{Client: s.cfg.Client, Sinks: []string{"mysql://x"}}); err == nil {
		t.Error("NewService with an invalid sink: got no error, want one")
	}
}
