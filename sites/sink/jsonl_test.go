package sink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/atomicfile"
)

// mine is the fence of a current writer.
func mine() error { return nil }

func open(t *testing.T, path string) *JSONL {
	t.Helper()
	s, err := OpenJSONL(path, mine)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRecordsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "r.jsonl")
	put := func(s *JSONL, key string, want bool) {
		t.Helper()
		got, err := s.Put(key, []byte(`{"_key":"`+key+`"}`))
		if err != nil || got != want {
			t.Errorf("put %s: got %v, %v, want %v", key, got, err, want)
		}
	}
	s := open(t, path)
	put(s, "a", true)
	put(s, "b", true)
	put(s, "a", false)
	if err := errors.Join(s.Sync(), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	put(s, "b", false)
	put(s, "c", true)
	if s.Count() != 3 {
		t.Errorf("counts %d, want 3", s.Count())
	}
	if err := errors.Join(s.Sync(), s.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if want := "{\"_key\":\"a\"}\n{\"_key\":\"b\"}\n{\"_key\":\"c\"}\n"; err != nil || string(data) != want {
		t.Errorf("got %q, %v, want %q", data, err, want)
	}
}

// After a crash in the last line, records are appended after the last complete one.
func TestIncompleteLineIsCutOff(t *testing.T) {
	t.Parallel()
	const whole = "{\"_key\":\"a\"}\n"
	const last = "{\"_key\":\"b\",\"text\":\"é\"}\n"
	for cut := 0; cut <= len(last); cut++ {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := os.WriteFile(path, []byte(whole+last[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, path)
		if _, err := s.Put("b", []byte(strings.TrimSuffix(last, "\n"))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Sync(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != whole+last {
			t.Errorf("cut after %d: got %q", cut, got)
		}
	}
	path := filepath.Join(t.TempDir(), "r.jsonl")
	if err := os.WriteFile(path, []byte(whole+"\x00\x00\x00\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := open(t, path); s.Count() != 1 {
		t.Errorf("a last line of zeros: got %d records, want it cut off", s.Count())
	}
}

func TestOtherFilesAreNotChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.txt")
	const notes = "some notes\nmore\n"
	if err := os.WriteFile(path, []byte(notes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJSONL(path, mine); err == nil || !strings.Contains(err.Error(), "is not a JSONL file") {
		t.Errorf("got %v, want a refusal", err)
	}
	if got, _ := os.ReadFile(path); string(got) != notes {
		t.Errorf("got %q, want the file unchanged", got)
	}
	if _, err := OpenJSONL(filepath.Join(path, "below"), mine); err == nil {
		t.Error("a folder that cannot be created: got no error, want one")
	}
	if _, err := OpenJSONL(dir, mine); err == nil {
		t.Error("a folder in place of the file: got no error, want one")
	}
}

func TestFullDiskIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	f, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	s := open(t, filepath.Join(t.TempDir(), "r.jsonl"))
	_ = s.f.Close()
	s.f = f
	s.w.Reset(f)
	if _, err := s.Put("a", []byte("{}")); err != nil {
		t.Fatalf("a buffered write fails: %v", err)
	}
	if err := s.Sync(); err == nil {
		t.Error("a full disk: got no error, want one")
	}
	if _, err := s.Put("b", []byte("{}")); err == nil {
		t.Error("Put after a failed write: got no error, want one")
	}
	_ = s.Close()
}

// line returns a record of about a size.
func line(key string, size int) string {
	return fmt.Sprintf(`{"_key":%q,"text":%q}`, key, strings.Repeat("x", size))
}

// errRefused is the error of the fence of a late writer.
var errRefused = errors.New("another writes")

// A late writer that continues after a takeover, from any point, does not change the file of the new writer.
func TestLateWriter(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(t *testing.T, path string, takeOver func()){
		"before it opened the file":                               openLate,
		"after it opened the file, before it cut off a torn line": cutOffLate,
		"in the middle of a line":                                 writeLate,
		"before it gives a copy its name": func(t *testing.T, path string, takeOver func()) {
			if err := Reclaim(path, func() error { takeOver(); return nil }); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want that its copy is gone", err)
			}
		},
		"before it gives a CSV file its name": func(t *testing.T, path string, takeOver func()) {
			if err := WriteCSV(path, path+".csv", []Column{{"_key"}}, func() error { takeOver(); return nil }); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want that its file is gone", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := line("a", 10) + "\n" + line("d", 10) + "\n" + line("e", 10) + "\n"
			if name == "in the middle of a line" { // its first line was whole
				want = strings.Replace(want, "\n", "\n"+line("b", 50<<10)+"\n", 1)
			}
			writeBesideLate(t, late, want)
		})
	}
}

// writeBesideLate lets a late writer continue while another writes to its file. In the end the file must have the lines of the
// other writer.
func writeBesideLate(t *testing.T, late func(t *testing.T, path string, takeOver func()), want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.jsonl")
	if err := os.WriteFile(path, []byte(line("a", 10)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var next *JSONL
	put := func(key string) {
		t.Helper()
		if _, err := next.Put(key, []byte(line(key, 10))); err != nil {
			t.Fatal(err)
		}
		if err := next.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	late(t, path, func() {
		if err := errors.Join(atomicfile.Abandon(filepath.Dir(path)), Reclaim(path, mine)); err != nil {
			t.Fatal(err)
		}
		next = open(t, path)
		put("d")
	})
	put("e")
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != want {
		t.Errorf("got %.300q, %v; want %.300q", data, err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v; want the permissions that it had", info.Mode(), err)
	}
}

func openLate(t *testing.T, path string, takeOver func()) {
	if _, err := OpenJSONL(path, func() error { takeOver(); return errRefused }); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want %v", err, errRefused)
	}
}

func cutOffLate(t *testing.T, path string, takeOver func()) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"_key":"torn"`); err != nil {
		t.Fatal(err)
	}
	s, err := OpenJSONL(path, func() error { takeOver(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), s.Close()); err != nil || !s.torn {
		t.Errorf("got %v, cut %v; want that it cut a line off", err, s.torn)
	}
}

func writeLate(t *testing.T, path string, takeOver func()) {
	late := false
	s, err := OpenJSONL(path, func() error {
		if late {
			return errRefused
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "c"} { // more than its buffer holds: half a line is in the file
		if _, err := s.Put(key, []byte(line(key, 50<<10))); err != nil {
			t.Fatal(err)
		}
	}
	if data, _ := os.ReadFile(path); len(data) < 60<<10 || data[len(data)-1] == '\n' {
		t.Fatalf("the file has %d bytes; want half a line at its end", len(data))
	}
	late = true
	takeOver()
	if err := s.Sync(); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want %v", err, errRefused)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A late process does not recreate a file that another one has removed.
func TestLateWriterMakesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "r.jsonl")
	if _, err := OpenJSONL(path, func() error { return errRefused }); !errors.Is(err, errRefused) {
		t.Errorf("the fence refuses: got %v, want %v", err, errRefused)
	}
	if _, err := OpenJSONL(path, func() error { return atomicfile.Abandon(dir) }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another takes over after the fence was asked: got %v, want that the file is gone", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("got files %v, %v; want none", left, err)
	}
}

// A file that is removed or replaced during writing is restored completely.
func TestRemovedFileIsRestored(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"file":   os.Remove,
		"folder": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"other": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte("{}\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "a", "r.jsonl")
			s := open(t, path)
			put := func(key string) {
				t.Helper()
				if _, err := s.Put(key, []byte(line(key, 1))); err != nil {
					t.Fatal(err)
				}
			}
			put("a")
			if err := errors.Join(s.Sync(), harm(path)); err != nil {
				t.Fatal(err)
			}
			put("b")
			if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "has been restored") {
				t.Errorf("got %v, want an error that it was restored", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s = open(t, path)
			defer s.Close()
			put("c")
			if err := s.Sync(); err != nil || s.Count() != 3 {
				t.Errorf("got %d records, %v; want 3", s.Count(), err)
			}
		})
	}
}
