package sites

import (
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/sites/internal/sitetest"
	"muster/sites/internal/store"
	"muster/tasks"
	"muster/tasks/redistest"
)

func TestJobIsBlockedWhileTheDiskOfRedisIsFull(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t, "appendonly", "yes")
	site := sitetest.NewShop(t, 1, 3)
	s := newService(t, srv.Client())
	def := site.Definition(t, "")
	req := begin(t, s, "j1", def, ScrapeOptions{BaseURL: site.URL})
	if _, err := store.Scrape(req).Send(t.Context(), s.cfg.Client, tasks.ID("j1")); err != nil {
		t.Fatal(err)
	}
	srv.FillDisk()
	j, err := s.Job(t.Context(), "j1")
	if err != nil || j.Status != JobBlocked || !strings.Contains(j.Trouble, "disk") || !strings.Contains(j.Trouble, srv.Dir) {
		t.Errorf("got %s, %q, %v; want %s, and the disk of %s", j.Status, j.Trouble, err, JobBlocked, srv.Dir)
	}
	srv.FreeDisk()
	testutil.Eventually(t, "the job is not blocked", func() bool {
		j, err = s.Job(t.Context(), "j1")
		testutil.Ok(t, err)
		return j.Status != JobBlocked
	})
	if j.Status != JobWaiting || j.Trouble != "" {
		t.Errorf("with room: got %s, %q, want %s", j.Status, j.Trouble, JobWaiting)
	}
}
