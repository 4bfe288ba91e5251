package sites

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"muster/sites/sink"
	"muster/tasks/redistest"
)

// mine is the fence of one who is not replaced.
func mine() error { return nil }

// Whoever follows a job gets its records once each, be the files torn
// meanwhile, or compressed before the end was seen.
func TestFollow(t *testing.T) {
	t.Parallel()
	site := newShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	j := begin(t, s, "j1", site.definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	path := filepath.Join(j.req.Dir(j.run), "item.jsonl")
	got := map[string]int{}
	each := func(record []byte) error { got[string(record)]++; return nil }
	var f follower
	f.each = each
	defer f.close()
	look := func(over bool) {
		t.Helper()
		if f.files == nil {
			if err := s.followFiles(t.Context(), &f, "j1"); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.read(t.Context(), over); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	look(false)
	write("{\"a\":1}\n{\"b\"")
	look(false)
	write("{\"a\":1}\n{\"c\":2}\n") // the torn line was cut off
	look(false)
	if err := sink.Reclaim(path, mine); err != nil { // another writer took over
		t.Fatal(err)
	}
	look(false)
	write("{\"a\":1}\n{\"c\":2}\n{\"d\":3}\n")
	look(false)
	if want := map[string]int{`{"a":1}`: 1, `{"c":2}`: 1, `{"d":3}`: 1}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, err := sink.Compress(path, "zstd", mine); err != nil {
		t.Fatal(err)
	}
	look(true)
	if len(got) != 3 || got[`{"a":1}`] != 1 {
		t.Errorf("got %v after it was compressed", got)
	}
	late := follower{each: each}
	if err := s.followFiles(t.Context(), &late, "j1"); err != nil {
		t.Fatal(err)
	}
	if err := late.read(t.Context(), true); err != nil || got[`{"a":1}`] != 2 || got[`{"c":2}`] != 2 {
		t.Errorf("somebody who came late: got %v, %v", got, err)
	}
	late.close()
	if err := os.Remove(path + ".zst"); err != nil {
		t.Fatal(err)
	}

	sum := run(t, j)
	seen := 0
	if err := s.Follow(t.Context(), "j1", func([]byte) error { seen++; return nil }); err != nil || seen != sum.Records {
		t.Errorf("a job that is over: got %d of %d records, %v", seen, sum.Records, err)
	}
	full := errors.New("no")
	if err := s.Follow(t.Context(), "j1", func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want what the function said", err)
	}
	if err := s.Follow(t.Context(), "unknown", each); err != nil {
		t.Errorf("a job that there is not: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ctx, "j1", each); err == nil {
		t.Error("no error although the context is over")
	}
}
