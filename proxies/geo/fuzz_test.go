package geo_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/geo"
)

// FuzzOpen checks that a damaged database is rejected, or that its damaged entries count as missing.
func FuzzOpen(f *testing.F) {
	raw, err := os.ReadFile(countries)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)-5])
	f.Add([]byte("\xab\xcd\xefMaxMind.com"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(dir, "damaged.mmdb")
		testutil.Ok(t, os.WriteFile(file, raw, 0o600))
		db, err := geo.Open(file)
		if err != nil {
			return
		}
		for _, addr := range []string{"8.8.8.8", "9.9.9.9", "2001:db8::1", "::"} {
			db.Lookup(netip.MustParseAddr(addr))
		}
	})
}
