package sink

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, path string) *JSONL {
	t.Helper()
	s, err := OpenJSONL(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJSONL(t *testing.T) {
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
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	put(s, "b", false)
	put(s, "c", true)
	if s.Count() != 3 {
		t.Errorf("counts %d, want 3", s.Count())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if want := "{\"_key\":\"a\"}\n{\"_key\":\"b\"}\n{\"_key\":\"c\"}\n"; err != nil || string(data) != want {
		t.Errorf("got %q, %v, want %q", data, err, want)
	}
}

// Whatever a crash left of the last line, the file goes on behind the last
// whole one.
func TestTornLine(t *testing.T) {
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
		if err := s.Close(); err != nil {
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
		t.Errorf("a last line of zeros counts: %d", s.Count())
	}
}

func TestForeignFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.txt")
	const notes = "dear diary\nmore\n"
	if err := os.WriteFile(path, []byte(notes), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenJSONL(path); err == nil || !strings.Contains(err.Error(), "is no JSONL file") {
		t.Errorf("got %v, want a refusal", err)
	}
	if got, _ := os.ReadFile(path); string(got) != notes {
		t.Errorf("the file was changed to %q", got)
	}
	if _, err := OpenJSONL(filepath.Join(path, "below")); err == nil {
		t.Error("no error for a folder that cannot be made")
	}
	if _, err := OpenJSONL(dir); err == nil {
		t.Error("no error for a folder")
	}
}

func TestFullDisk(t *testing.T) {
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
		t.Error("no error from a full disk")
	}
	if _, err := s.Put("b", []byte("{}")); err == nil {
		t.Error("takes records after a failed write")
	}
	_ = s.Close()
}
