package sites

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"muster/sites/internal/sitetest"
	"muster/tasks/redistest"
)

// follow is a follower of a file that the test writes.
type follow struct {
	*follower
	t    *testing.T
	path string
	got  map[string]int // how often each record was passed on
}

// newFollow follows the items of job j1 of s.
func newFollow(t *testing.T, s *Service) *follow {
	t.Helper()
	f := &follow{t: t, got: map[string]int{}}
	f.follower = &follower{each: func(record []byte) error { f.got[string(record)]++; return nil }}
	var err error
	if f.files, err = s.filesOf(t.Context(), "j1"); err != nil {
		t.Fatal(err)
	}
	f.path = f.files[0].path
	t.Cleanup(f.close)
	return f
}

func (f *follow) write(text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// look reads the file and compares the deliveries per record since the first look.
func (f *follow) look(want map[string]int) {
	f.t.Helper()
	if err := f.read(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	if !maps.Equal(f.got, want) {
		f.t.Errorf("got %v, want %v", f.got, want)
	}
}

func TestFollowPassesEachRecordOnOnce(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	begin(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	a, c, d := `{"a":1}`, `{"c":2}`, `{"d":3}`
	f := newFollow(t, s)
	f.look(map[string]int{})
	f.write(a + "\n{\"b\"")
	f.look(map[string]int{a: 1})
	f.write(a + "\n" + c + "\n") // the torn line was cut off
	f.look(map[string]int{a: 1, c: 1})
	if err := os.Remove(f.path); err != nil { // and restored
		t.Fatal(err)
	}
	f.write(a + "\n" + c + "\n")
	f.look(map[string]int{a: 1, c: 1})
	f.write(a + "\n" + c + "\n" + d + "\n")
	f.look(map[string]int{a: 1, c: 1, d: 1})
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	site := sitetest.NewShop(t, 1, 10)
	s := newService(t, redistest.New(t))
	sum := scrape(t, s, "j1", site.Definition(t, ""), ScrapeOptions{BaseURL: site.URL})
	seen := 0
	count := func([]byte) error { seen++; return nil }
	if err := s.Follow(t.Context(), "j1", count); err != nil || seen != sum.Records {
		t.Errorf("a job that is over: got %d records and error %v, want %d and none", seen, err, sum.Records)
	}
	full := errors.New("no")
	if err := s.Follow(t.Context(), "j1", func([]byte) error { return full }); !errors.Is(err, full) {
		t.Errorf("when the function fails: got error %v, want %v", err, full)
	}
	if err := s.Follow(t.Context(), "unknown", count); err != nil {
		t.Errorf("a job that does not exist: got error %v, want none", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Follow(ctx, "j1", count); !errors.Is(err, context.Canceled) {
		t.Errorf("when ctx has ended: got error %v, want %v", err, context.Canceled)
	}
}
