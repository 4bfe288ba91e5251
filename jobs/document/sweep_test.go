package document

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/jobs"
)

// putAged stores a text that was written as long ago as age.
func putAged(t *testing.T, s *Store, text string, age time.Duration) jobs.Document {
	t.Helper()
	doc := testutil.Must(s.Put(t.Context(), "a", strings.NewReader(text)))(t)
	path := testutil.Must(s.path(doc.Hash))(t)
	makeOld(t, path, age)
	return doc
}

func makeOld(t *testing.T, file string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	testutil.Ok(t, os.Chtimes(file, at, at))
}

func TestSweepRemovesWhatIsOldAndNotUsed(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	used, _, young := putAged(t, s, "used", 25*time.Hour), putAged(t, s, "unused", 25*time.Hour), putAged(t, s, "young", 23*time.Hour)
	for name, age := range map[string]time.Duration{"old.part": 25 * time.Hour, "new.part": 0} {
		part := filepath.Join(s.cfg.Dir, partFolder, name)
		testutil.Ok(t, os.WriteFile(part, nil, 0o600))
		makeOld(t, part, age)
	}
	n, err := s.Sweep(t.Context(), func(_ context.Context, hash string) (bool, error) { return hash == used.Hash, nil })
	if n != 2 || err != nil {
		t.Errorf("got %d, %v, want two files removed", n, err)
	}
	want := []string{used.Hash, young.Hash, "new.part"}
	slices.Sort(want)
	got := contents(t, s)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got the files %v, want %v", got, want)
	}
}

// A document that is stored again while it is swept stays.
func TestSweepKeepsWhatIsStoredMeanwhile(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	doc := putAged(t, s, "text", 25*time.Hour)
	n, err := s.Sweep(t.Context(), func(context.Context, string) (bool, error) {
		putAged(t, s, "text", 0)
		return false, nil
	})
	if got := contents(t, s); n != 0 || err != nil || !slices.Equal(got, []string{doc.Hash}) {
		t.Errorf("got %d, %v and the files %v, want only %s", n, err, got, doc.Hash)
	}
}

// If the use of a document cannot be determined, or the directory belongs to another store, nothing is removed.
func TestSweepThatFailsRemovesNoDocument(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	doc := putAged(t, s, "text", 25*time.Hour)
	why := errors.New("no answer")
	if n, err := s.Sweep(t.Context(), func(context.Context, string) (bool, error) { return false, why }); n != 0 || !errors.Is(err, why) {
		t.Errorf("got %d, %v, want %v", n, err, why)
	}
	other := at(s.cfg.Dir, "other")
	if n, err := other.Sweep(t.Context(), func(context.Context, string) (bool, error) { return false, nil }); n != 0 || err == nil {
		t.Errorf("another store: got %d, %v, want an error", n, err)
	}
	if got := contents(t, s); !slices.Equal(got, []string{doc.Hash}) {
		t.Errorf("got the files %v, want only %s", got, doc.Hash)
	}
}
