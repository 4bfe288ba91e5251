package document

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/jobs"
)

// hooked calls a function when it is asked whether it is done, which Put does before each read.
type hooked struct {
	context.Context
	hook func()
}

func (c hooked) Err() error { c.hook(); return c.Context.Err() }

func TestPutFileStoresAFile(t *testing.T) {
	t.Parallel()
	s, path := open(t), filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("1,2"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := s.PutFile(t.Context(), path, limit)
	if want := (jobs.Document{Name: "a.csv", Hash: hashOf("1,2"), Size: 3, Type: "text/csv", Source: path}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := s.PutFile(t.Context(), path, 2); !errors.As(err, new(*TooLargeError)) {
		t.Errorf("too large: got %v, want a *TooLargeError", err)
	}
}

// Whatever is written to the file while it is read, what is stored has its hash.
func TestPutFileNoticesThatTheFileChanges(t *testing.T) {
	t.Parallel()
	const size = 200 << 10
	for name, change := range map[string]func(path string) error{
		"grows":   func(path string) error { return appendTo(path, "more") },
		"shrinks": func(path string) error { return os.Truncate(path, size/2) },
		"is rewritten": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("b"), size), 0o600)
		},
	} {
		s, path := open(t), filepath.Join(t.TempDir(), "a.bin")
		if err := os.WriteFile(path, bytes.Repeat([]byte("a"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-time.Hour) // the clock of files may tick only every few milliseconds
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		reads := 0
		ctx := hooked{t.Context(), func() {
			if reads++; reads == 3 {
				if err := change(path); err != nil {
					t.Error(err)
				}
			}
		}}
		if _, err := s.PutFile(ctx, path, limit); err == nil || !strings.Contains(err.Error(), "changed while it was read") {
			t.Errorf("%s: got %v, want an error that says so", name, err)
		}
		if got := contents(t, s); len(got) != 0 {
			t.Errorf("%s: got the files %v, want none", name, got)
		}
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
