package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/internal/testutil/faultdisk"
)

// Whichever call to the disk fails while a book is updated, it is that of the job before or of this one, and the update
// can be repeated.
func TestEachFailingCallOfAnUpdate(t *testing.T) {
	t.Parallel()
	jobs := t.TempDir()
	runs := []string{"j1", "j2"}
	for i, text := range []string{rec("a", 1) + "\n" + rec("b", 1) + "\n", rec("b", 2) + "\n" + rec("c", 1) + "\n"} {
		if err := os.WriteFile(filepath.Join(jobs, runs[i]), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	update := func(dir string, runs []string) (gone string, err error) {
		for i, run := range runs {
			gone = ""
			job := Job{Run: run, At: time.Unix(int64(i), 0), Records: filepath.Join(jobs, run), Complete: true, Fence: mine}
			if err := Update(filepath.Join(dir, "books", "item.ledger"), job, func(e Entry) error { gone += e.Key; return nil }); err != nil {
				return gone, err
			}
		}
		return gone, nil
	}
	faultdisk.Each(t, func(dir string) error {
		_, err := update(dir, runs)
		return err
	}, func(dir string, failed faultdisk.Call, err error) {
		path := filepath.Join(dir, "books", "item.ledger")
		b, oerr := Open(path)
		if oerr != nil {
			t.Fatalf("%s fails: got %v, want the book whole", failed, oerr)
		}
		todo := map[string][]string{"": runs, "j1": runs[1:], "j2": runs[1:]}[b.run]
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "books", ".*")); len(left) > 0 && failed.Name != "remove" {
			t.Errorf("%s fails: got %v left behind, want none", failed, left)
		}
		if gone, err := update(dir, todo); err != nil || gone != "a" {
			t.Errorf("%s failed: got %v and the gone records %q when the disk is well again, want a", failed, err, gone)
		}
		s := &site{t: t, path: path}
		if a, b, c := s.show("a"), s.show("b"), s.show("c"); a.Missed != 1 || len(b.History) != 1 || c.Missed != 0 {
			t.Errorf("%s failed: got %+v, %+v, %+v, want a gone once, b changed once, and c", failed, a, b, c)
		}
	})
}
