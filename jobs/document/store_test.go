package document

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"muster/internal/testutil"
	"muster/jobs"
)

// storeOf returns a store whose directory exists.
func storeOf(t *testing.T, change ...func(*Config)) *Store {
	t.Helper()
	s := at(filepath.Join(t.TempDir(), "documents"), "store-1", change...)
	testutil.Ok(t, s.Check(t.Context()))
	return s
}

func at(dir, owner string, change ...func(*Config)) *Store {
	cfg := Config{Dir: dir, Limit: 1 << 20, Owner: func(context.Context) (string, error) { return owner, nil }}
	for _, c := range change {
		c(&cfg)
	}
	return New(cfg)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// contents are the files below the folder, apart from the mark.
func contents(t *testing.T, s *Store) (files []string) {
	t.Helper()
	err := filepath.WalkDir(s.cfg.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != markFile {
			files = append(files, e.Name())
		}
		return err
	})
	testutil.Ok(t, err)
	return files
}

func TestPutKeepsTheSameContentOnce(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("folder/report %d.pdf", i)
			got, err := s.Put(t.Context(), name, strings.NewReader("content"))
			want := jobs.Document{Name: fmt.Sprintf("report %d.pdf", i), Hash: hashOf("content"), Size: 7, Type: "application/pdf"}
			if err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
	all.Wait()
	if got := contents(t, s); len(got) != 1 || got[0] != hashOf("content") {
		t.Errorf("got the files %v, want one", got)
	}
	r := testutil.Must(s.Open(hashOf("content")))(t)
	defer r.Close()
	if got, err := io.ReadAll(r); string(got) != "content" || err != nil {
		t.Errorf("got %q, %v, want the content", got, err)
	}
	info, err := os.Stat(s.cfg.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v, want a folder for its owner only", info.Mode(), err)
	}
}

// A content that was damaged on disk is whole again after it was put again.
func TestPutRepairsADamagedContent(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	for range 2 {
		doc := testutil.Must(s.Put(t.Context(), "a", strings.NewReader("content")))(t)
		path := testutil.Must(s.path(doc.Hash))(t)
		if got, err := os.ReadFile(path); string(got) != "content" || err != nil {
			t.Errorf("got %q, %v, want the content", got, err)
		}
		testutil.Ok(t, os.WriteFile(path, []byte("damaged"), 0o600))
	}
}

func TestFailedPutLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := storeOf(t, func(c *Config) { c.Limit = 4 })
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		r  io.Reader
		ok func(error) bool
	}{
		"empty":      {strings.NewReader(""), func(err error) bool { return errors.As(err, new(*jobs.FieldError)) }},
		"too large":  {strings.NewReader("12345"), func(err error) bool { return errors.As(err, new(*TooLargeError)) }},
		"read error": {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(boom)), func(err error) bool { return errors.Is(err, boom) }},
	} {
		if _, err := s.Put(t.Context(), name, c.r); !c.ok(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(cancelled, "a", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
	if got := contents(t, s); len(got) != 0 {
		t.Errorf("got the files %v, want none", got)
	}
	if _, err := s.Put(t.Context(), "a", strings.NewReader("1234")); err != nil {
		t.Errorf("as large as the limit: got %v", err)
	}
}

func TestFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	s := storeOf(t)
	s.part = func(dir string) (*os.File, error) {
		link := filepath.Join(dir, partFolder, "full.part")
		if err := os.Symlink("/dev/full", link); err != nil {
			return nil, err
		}
		return os.OpenFile(link, os.O_RDWR, 0)
	}
	if _, err := s.Put(t.Context(), "a", strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "no space is left in "+s.cfg.Dir) {
		t.Errorf("got %v, want an error with the reason", err)
	}
	if got := contents(t, s); len(got) != 0 {
		t.Errorf("got the files %v, want none", got)
	}
}

func TestNamesAndTypes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 300)
	for _, c := range []struct{ name, content, wantName, wantType string }{
		{"/etc/passwd", "x", "passwd", "text/plain"},
		{`C:\Users\me\Report.DOCX`, "x", "Report.DOCX", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
		{"../../..", "x", "document", "text/plain"},
		{"", "\x89PNG\r\n\x1a\n", "document", "image/png"},
		{"a\r\nb\x00.txt", "x", "ab.txt", "text/plain"},
		{"x.bin", "%PDF-1.7", "x.bin", "application/pdf"},
		{long + ".pdf", "x", strings.Repeat("ä", 98) + ".pdf", "application/pdf"},
		{"bad\xff.csv", "x", "bad.csv", "text/csv"},
	} {
		got, err := storeOf(t).Put(t.Context(), c.name, strings.NewReader(c.content))
		if err != nil || got.Name != c.wantName || got.Type != c.wantType {
			t.Errorf("%.40q: got %q of type %s, %v, want %q of type %s", c.name, got.Name, got.Type, err, c.wantName, c.wantType)
		}
	}
}

// A hash comes from outside: it never leads to another file.
func TestHashesAreNoPaths(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	for _, bad := range []string{"", markFile, "../" + markFile, strings.Repeat("A", 64), strings.Repeat("a", 63), strings.Repeat("a", 65), strings.Repeat("a", 64) + "\n"} {
		if _, err := s.Open(bad); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: got %v, want a refusal", bad, err)
		}
		if err := s.Remove(bad, unused); err == nil {
			t.Errorf("remove %q: got no error, want one", bad)
		}
	}
	missing := strings.Repeat("a", 64)
	if _, err := s.Open(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing document: got %v, want fs.ErrNotExist", err)
	}
	if err := s.Remove(missing, unused); err != nil {
		t.Errorf("remove a missing document: got %v, want no error", err)
	}
}

func TestFolderBelongsToOneStore(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	if err := at(s.cfg.Dir, "store-1").Check(t.Context()); err != nil {
		t.Errorf("the same store again: got %v", err)
	}
	err := at(s.cfg.Dir, "store-2").Check(t.Context())
	for _, want := range []string{`"store-1"`, `"store-2"`, "use another folder", filepath.Join(s.cfg.Dir, markFile)} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to contain %s", err, want)
		}
	}
	for _, bad := range []string{"", "two words", "line\n", strings.Repeat("x", 201)} {
		if err := at(t.TempDir(), bad).Check(t.Context()); err == nil {
			t.Errorf("the id %q: got no error, want one", bad)
		}
	}
}

// Of two stores that open a new folder at once, one gets it.
func TestTwoStoresCannotMarkAFolderAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	opened := make(chan *Store, 8)
	for i := range cap(opened) {
		all.Go(func() {
			if s := at(dir, fmt.Sprint("store-", i)); s.Check(t.Context()) == nil {
				opened <- s
			}
		})
	}
	all.Wait()
	if len(opened) != 1 {
		t.Fatalf("got %d stores in one folder, want 1", len(opened))
	}
	if err := (<-opened).Check(t.Context()); err != nil {
		t.Errorf("the store that got it: got %v", err)
	}
}

func TestCheckFindsALostFolder(t *testing.T) {
	t.Parallel()
	s := storeOf(t)
	testutil.Ok(t, s.Check(t.Context()))
	if got := contents(t, s); len(got) != 0 {
		t.Errorf("Check left the files %v", got)
	}
	testutil.Ok(t, os.WriteFile(filepath.Join(s.cfg.Dir, markFile), []byte("other\n"), 0o600))
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `belongs to the store "other"`) {
		t.Errorf("another mark: got %v", err)
	}
	testutil.Ok(t, os.RemoveAll(s.cfg.Dir))
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("no folder: got %v", err)
	}
}

func unused() (bool, error) { return true, nil }

// A document that is used again while it is removed is kept.
func TestRemoveKeepsWhatIsUsedAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(s *Store) (bool, error){
		"used":      func(*Store) (bool, error) { return false, nil },
		"not known": func(*Store) (bool, error) { return false, errors.New("no reply") },
		"stored anew": func(s *Store) (bool, error) {
			_, err := s.Put(t.Context(), "a", strings.NewReader("x"))
			return true, err
		},
	} {
		s := storeOf(t)
		doc, err := s.Put(t.Context(), "a", strings.NewReader("x"))
		testutil.Ok(t, err)
		err = s.Remove(doc.Hash, func() (bool, error) {
			if _, err := s.Open(doc.Hash); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: open while it is decided: got %v, want %v", name, err, fs.ErrNotExist)
			}
			return again(s)
		})
		if (err != nil) != (name == "not known") {
			t.Errorf("%s: got %v", name, err)
		}
		f, err := s.Open(doc.Hash)
		if err != nil {
			t.Errorf("%s: got %v, want the document", name, err)
			continue
		}
		_ = f.Close()
	}
}
