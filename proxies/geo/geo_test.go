package geo_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/proxies/geo"
)

// Two databases as specified by MaxMind, with 24-bit records: of countries in various forms, and of an autonomous system.
const countries, systems = "testdata/countries.mmdb", "testdata/systems.mmdb"

func TestLookup(t *testing.T) {
	t.Parallel()
	db := testutil.Must(geo.Open(countries, systems))(t)
	for addr, want := range map[string]geo.Place{
		"8.8.8.8": {"US", 15169, "GOOGLE"}, "::ffff:8.8.8.8": {"US", 15169, "GOOGLE"}, "8.8.4.4": {Country: "US"}, "9.9.9.9": {Country: "BG"},
		"10.1.1.1": {Country: "RO"}, "11.1.1.1": {}, "200.1.1.1": {}, "2606:4700::1111": {},
	} {
		if got := db.Lookup(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %+v, want %+v", addr, got, want)
		}
	}
	if got := (&geo.DB{}).Lookup(netip.Addr{}); got != (geo.Place{}) {
		t.Errorf("got %+v", got)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	t.Parallel()
	content := testutil.Must(os.ReadFile(countries))(t)
	dir := t.TempDir()
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("US 8.8.8.8"), "half": content[:len(content)/2], "no tree": content[bytes.Index(content, []byte("\xab\xcd\xef")):]} {
		path := filepath.Join(dir, name)
		testutil.Ok(t, os.WriteFile(path, b, 0o600))
		if _, err := geo.Open(countries, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := geo.Open(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	// A damaged data section does not cause a panic.
	broken := bytes.Clone(content)
	at := bytes.Index(broken, []byte("country")) - 2
	copy(broken[at:], bytes.Repeat([]byte{0xff}, 12))
	path := filepath.Join(dir, "broken")
	testutil.Ok(t, os.WriteFile(path, broken, 0o600))
	if db, err := geo.Open(path); err == nil {
		if got := db.Lookup(netip.MustParseAddr("10.1.1.1")); got.ASN != 0 {
			t.Errorf("got %+v", got)
		}
	}
}

// FuzzOpen checks that a damaged database is rejected, or that its damaged entries count as missing.
func FuzzOpen(f *testing.F) {
	raw := testutil.Must(os.ReadFile(countries))(f)
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
