package artifact_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil/faultdisk"
	"muster/orchestrator/artifact"
	"muster/tasks/workqueue"
)

// Whichever call to the disk fails, a content is kept whole or not at all, and the next attempt of its item keeps it.
func TestEachFailingCallOfAFetch(t *testing.T) {
	t.Parallel()
	h := newHost(t, hello)
	fetch := func(dir string) error {
		f, err := artifact.NewFetcher(artifact.FetcherConfig{Dir: dir, Filter: local, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		_, err = f.Handle(context.Background(), workqueue.Leased{Item: workqueue.Item{ID: "a", Payload: []byte(`{"url":"` + h.URL + `"}`)}})
		return err
	}
	contents := func(dir, pattern string) []string {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Error(err)
		}
		return files
	}
	faultdisk.Each(t, fetch, func(dir string, failed faultdisk.Call, err error) {
		if err != nil && strings.Contains(err.Error(), "download:") {
			t.Errorf("%s fails: got %v, want no blame of the host", failed, err)
		}
		if parts := contents(dir, "incoming/*"); len(parts) > 0 && failed.Name != "remove" {
			t.Errorf("%s fails: got %v, want no part", failed, parts)
		}
		for try := range 2 {
			kept := contents(dir, "??/*")
			if len(kept) > 1 || len(kept) == 0 && err == nil {
				t.Errorf("%s failed, %v: got the contents %v, want one", failed, err, kept)
			}
			for _, name := range kept {
				if text, err := os.ReadFile(name); err != nil || string(text) != "hello" {
					t.Errorf("%s failed: got %q, %v, want the content whole", failed, text, err)
				}
			}
			if try == 0 {
				if err = fetch(dir); err != nil {
					t.Errorf("%s failed: got %v when the disk is well again", failed, err)
				}
			}
		}
	})
}

// A content is on the disk only when the names of its file and of its folder are.
func TestContentsAreSynced(t *testing.T) {
	t.Parallel()
	h := newHost(t, hello)
	dir := t.TempDir()
	f, err := artifact.NewFetcher(artifact.FetcherConfig{Dir: dir, Filter: local, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := faultdisk.Run(t, faultdisk.Fault{Dir: dir}, func() {
		_, err = f.Handle(context.Background(), workqueue.Leased{Item: workqueue.Item{ID: "a", Payload: []byte(`{"url":"` + h.URL + `"}`)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	calls := d.Calls()
	renamed := slices.IndexFunc(calls, func(c faultdisk.Call) bool { return c.Name == "rename" })
	if renamed < 0 {
		t.Fatalf("got %v, want a rename", calls)
	}
	for _, in := range []string{filepath.Dir(calls[renamed].Path), dir} {
		if !slices.Contains(calls[renamed:], faultdisk.Call{Name: "sync", Path: in}) {
			t.Errorf("got %v, want %s synced after the rename", calls, in)
		}
	}
}
