package document

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil/faultdisk"
)

// dir of the documents below the folder of an attempt.
const faultDir = "documents"

// whole returns the hashes of the documents that are stored; each must have its content. What is written in part must
// be removed, unless the call that failed was to remove it.
func whole(t *testing.T, dir string, failed faultdisk.Call) []string {
	t.Helper()
	s := &Store{dir: filepath.Join(dir, faultDir)}
	if _, err := os.Stat(s.dir); err != nil {
		return nil // the call that failed was to make it
	}
	var documents []string
	for _, name := range contents(t, s) {
		if strings.HasSuffix(name, ".part") {
			if failed.Name != "remove" {
				t.Errorf("%s fails: got the file %s left behind, want none", failed, name)
			}
			continue
		}
		path, err := s.path(name)
		if err != nil {
			t.Errorf("%s fails: got the file %s, want documents only", failed, name)
			continue
		}
		if text, err := os.ReadFile(path); err != nil || hashOf(string(text)) != name {
			t.Errorf("%s fails: got %d bytes, %v, want the document %s whole", failed, len(text), err, name)
		}
		documents = append(documents, name)
	}
	return documents
}

// Whichever call to the disk fails, a document is stored whole or not at all, and can be stored again.
func TestEachFailingCallOfPut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100<<10)
	put := func(dir string) error {
		s, err := Open(filepath.Join(dir, faultDir), "store-1")
		if err == nil {
			_, err = s.Put(context.Background(), "a", strings.NewReader(long), limit)
		}
		return err
	}
	faultdisk.Each(t, put, func(dir string, failed faultdisk.Call, err error) {
		if got := whole(t, dir, failed); err == nil && len(got) != 1 {
			t.Errorf("%s fails: got the documents %v and no error, want one document", failed, got)
		}
		if err := put(dir); err != nil {
			t.Errorf("%s failed: got %v when the disk is well again", failed, err)
		}
		if got := whole(t, dir, failed); !slices.Equal(got, []string{hashOf(long)}) {
			t.Errorf("%s failed: got the documents %v when the disk is well again, want one", failed, got)
		}
	})
}

// A document is on the disk only when the names of its file and of its folder are.
func TestPutSyncsTheFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), faultDir)
	s, err := Open(dir, "store-1")
	if err != nil {
		t.Fatal(err)
	}
	d := faultdisk.Run(t, faultdisk.Fault{Dir: dir, Err: syscall.EIO}, func() {
		_, err = s.Put(context.Background(), "a", strings.NewReader("text"), limit)
	})
	if err != nil {
		t.Fatal(err)
	}
	calls := d.Calls()
	for name, in := range map[string]string{"mkdir": dir, "rename": filepath.Join(dir, hashOf("text")[:2])} {
		made := slices.IndexFunc(calls, func(c faultdisk.Call) bool { return c.Name == name })
		if made < 0 || !slices.Contains(calls[made:], faultdisk.Call{Name: "sync", Path: in}) {
			t.Errorf("got %v, want %s synced after the %s", calls, in, name)
		}
	}
}

// Whichever call to the disk fails while a document is removed that another job needs by then, it stays.
func TestEachFailingCallOfRemove(t *testing.T) {
	t.Parallel()
	var stored sync.Map // folders
	faultdisk.Each(t, func(dir string) error {
		s, err := Open(filepath.Join(dir, faultDir), "store-1")
		if err != nil {
			return err
		}
		doc, err := s.Put(context.Background(), "a", strings.NewReader("text"), limit)
		if err != nil {
			return err
		}
		stored.Store(dir, true)
		return s.Remove(doc.Hash, func() (bool, error) { return false, nil })
	}, func(dir string, failed faultdisk.Call, _ error) {
		_, put := stored.Load(dir)
		if !put {
			return
		}
		s, err := Open(filepath.Join(dir, faultDir), "store-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sweep(context.Background(), func(context.Context, string) (bool, error) { return true, nil }); err != nil {
			t.Errorf("%s failed: sweep: %v", failed, err)
		}
		f, err := s.Open(hashOf("text"))
		if err != nil {
			t.Errorf("%s failed: got %v, want the document that is used", failed, err)
			return
		}
		defer f.Close()
		if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
			t.Errorf("%s failed: got %q, %v, want the document that is used", failed, text, err)
		}
	})
}

// Whichever call to the disk fails while documents are swept, one that is stored again meanwhile stays, and the next
// sweep removes the others.
func TestEachFailingCallOfSweep(t *testing.T) {
	t.Parallel()
	var swept sync.Map // folders
	again := hashOf("again")
	faultdisk.Each(t, func(dir string) error {
		s, err := Open(filepath.Join(dir, faultDir), "store-1")
		if err != nil {
			return err
		}
		old := time.Now().Add(-25 * time.Hour)
		for _, text := range []string{"again", "other"} {
			doc, err := s.Put(context.Background(), "a", strings.NewReader(text), limit)
			if err != nil {
				return err
			}
			path, err := s.path(doc.Hash)
			if err == nil {
				err = os.Chtimes(path, old, old)
			}
			if err != nil {
				return err
			}
		}
		_, err = s.Sweep(context.Background(), func(_ context.Context, hash string) (bool, error) {
			if hash != again {
				return false, nil
			}
			path, err := s.path(hash) // another process stores it
			now := time.Now()
			swept.Store(dir, true)
			return false, errors.Join(err, os.Chtimes(path, now, now))
		})
		return err
	}, func(dir string, failed faultdisk.Call, _ error) {
		if _, is := swept.Load(dir); !is {
			return
		}
		s, err := Open(filepath.Join(dir, faultDir), "store-1")
		if err != nil {
			t.Fatal(err)
		}
		parts, err := filepath.Glob(filepath.Join(s.dir, partFolder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range parts { // a day later
			makeOld(t, part, 25*time.Hour)
		}
		_, err = s.Sweep(context.Background(), func(_ context.Context, hash string) (bool, error) { return hash == again, nil })
		if got := contents(t, s); err != nil || !slices.Equal(got, []string{again}) {
			t.Errorf("%s failed: got %v and the files %v after the next sweep, want only %s", failed, err, got, again)
		}
	})
}
