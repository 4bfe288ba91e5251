package supervise

import (
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
)

// FuzzPIDFile checks that a damaged PID file is rejected, or names a process that is not taken for a child.
func FuzzPIDFile(f *testing.F) {
	f.Add([]byte(`{"name":"worker-1","process":{"pid":5}}`))
	f.Add([]byte(`{"process":{"pid":-1}}`))
	f.Add([]byte(`{"process":{"pid":0}}`))
	f.Add([]byte(`{"name":"x"`))
	path := filepath.Join(f.TempDir(), "x.1.pid")
	f.Fuzz(func(t *testing.T, raw []byte) {
		testutil.Ok(t, os.WriteFile(path, raw, 0o600))
		file, err := readPIDFile(path)
		if err != nil {
			return
		}
		if p := file.Process; p.PID <= 1 && p.Alive() {
			t.Errorf("%q: process %d is treated as a child", raw, p.PID)
		}
	})
}
