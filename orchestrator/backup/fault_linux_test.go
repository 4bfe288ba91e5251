package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/internal/atomicfile"
	"muster/internal/testutil/faultdisk"
	"muster/orchestrator/backup"
	"muster/tasks/redistest"
)

// smallBackup is an export of a pipeline, and of a job with a document; it writes the document to a folder.
func smallBackup(t *testing.T, documents string) string {
	t.Helper()
	const content = "the document"
	sum := sha256.Sum256([]byte(content))
	hash := hex.EncodeToString(sum[:])
	if err := os.WriteFile(filepath.Join(documents, hash), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return `{"kind":"muster-export","format":1}
{"kind":"pipeline","name":"mine","yaml":"stages: [{name: create, role: creator, takes: job}]"}
{"kind":"job","id":"a","record":{"kind":"pipeline","name":"p","status":"completed","version":1,"created":"2026-01-01T00:00:00Z","ended":"2026-01-01T00:00:00Z",` +
		`"doc":{"name":"a.txt","sha256":"` + hash + `","size":12},"pipeline":{"name":"p","stages":[{"name":"create","role":"creator","takes":"job"}]}}}
{"kind":"end","job":"a","items":0}
`
}

// Whichever call to the disk fails while a backup is imported and exported again, each file is whole or is not there, and
// both can be repeated.
func TestEachFailingCallOfABackup(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	text := smallBackup(t, source)
	var sites sync.Map // by folder
	move := func(dir string, s *site) error {
		if _, err := s.load(text, backup.ImportOptions{Documents: source}); err != nil {
			return err
		}
		return atomicfile.Write(filepath.Join(dir, "backup.jsonl"), 0o600, func(w io.Writer) error {
			_, err := backup.Export(s.ctx, s.store, w, backup.ExportOptions{Documents: filepath.Join(dir, "copies")})
			return err
		})
	}
	faultdisk.Each(t, func(dir string) error {
		made := make(chan *site, 1)
		go func() { made <- newSite(t, redistest.Mini(t), dir, false) }() // its calls are not watched
		s := <-made
		sites.Store(dir, s)
		return move(dir, s)
	}, func(dir string, failed faultdisk.Call, _ error) {
		at, _ := sites.Load(dir)
		s := at.(*site)
		for _, again := range []bool{false, true} {
			if again {
				if err := move(dir, s); err != nil {
					t.Errorf("%s failed: got %v when the disk is well again", failed, err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(dir, "backup.jsonl")); again || !errors.Is(err, fs.ErrNotExist) {
				if lines := bytes.Count(got, []byte("\n")); err != nil || lines != 5 || !bytes.Contains(got, []byte(`{"kind":"done"`)) {
					t.Errorf("%s failed, again %v: got %d lines, %v, want the export whole", failed, again, lines, err)
				}
			}
			if got, err := os.ReadFile(filepath.Join(s.folder, "mine.yaml")); again || !errors.Is(err, fs.ErrNotExist) {
				if err != nil || !strings.HasPrefix(string(got), "stages: ") || !strings.HasSuffix(string(got), "}]") {
					t.Errorf("%s failed, again %v: got the pipeline %q, %v, want it whole", failed, again, got, err)
				}
			}
			copies, err := filepath.Glob(filepath.Join(dir, "copies", "*"))
			if err != nil || again && len(copies) != 1 {
				t.Errorf("%s failed: got the copies %v, %v, want one", failed, copies, err)
			}
			for _, name := range copies {
				got, err := os.ReadFile(name)
				if sum := sha256.Sum256(got); err != nil || hex.EncodeToString(sum[:]) != filepath.Base(name) {
					t.Errorf("%s failed, again %v: got %d bytes of the document, %v, want it whole", failed, again, len(got), err)
				}
			}
		}
		if _, err := s.jobs.Get(s.ctx, "a"); err != nil {
			t.Errorf("%s failed: got %v, want the job", failed, err)
		}
	})
}
