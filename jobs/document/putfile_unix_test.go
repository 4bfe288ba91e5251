//go:build unix

package document

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestPutFileRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	s, dir := open(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                           "it is a folder; name a file",
		"/dev/null":                   "it is no regular file; name one",
		filepath.Join(dir, "missing"): "no such file",
		fifo:                          "it is no regular file; name one",
	} {
		if _, err := s.PutFile(t.Context(), path, limit); err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), path) != 1 {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
