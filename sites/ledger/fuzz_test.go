package ledger

import (
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
)

// FuzzOpen checks that a damaged ledger is rejected or readable.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("{\"ledger\":1,\"run\":\"a\"}\n{\"key\":\"k\",\"record\":{\"a\":1}}\n"), []byte("{\"_key\":\"k\",\"a\":2}\n"))
	f.Add([]byte("{\"ledger\":1}\n{\"key\":\"k\",\"record\":null,\"missed\":-5}"), []byte("{\"_key\":\"j\"}"))
	f.Add([]byte("{\"ledger\":9}\n"), []byte("\n\n"))
	f.Add([]byte("\n"), []byte("{"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw, records []byte) {
		book, found := filepath.Join(dir, "x.ledger"), filepath.Join(dir, "x.jsonl")
		for path, text := range map[string][]byte{book: raw, found: records} {
			testutil.Ok(t, os.WriteFile(path, text, 0o600))
		}
		b, err := Open(book)
		if err != nil {
			return
		}
		_, _, _ = b.Show("k")
		_, _, _ = b.Compare("k", records)
		testutil.Ok(t, b.Close())
		if Update(book, Job{Run: "r", Records: found, Complete: true}, func(Entry) error { return nil }) != nil {
			return
		}
		again, err := Open(book)
		if err != nil {
			t.Fatalf("%q with %q becomes a ledger that cannot be read: %v", raw, records, err)
		}
		_ = again.Close()
	})
}
