// Package geo looks up the country and the network of addresses, offline, from databases in MaxMind's format (.mmdb).
package geo

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/oschwald/maxminddb-golang/v2"
)

// maxFile bounds a database: it is read into memory whole. The largest that are published for this have some 100 MB.
const maxFile = 512 << 20

// Place is what databases say of an address. What they do not know is zero.
type Place struct {
	Country string // two letters
	ASN     uint
	ASOrg   string
}

// DB is databases opened together. It may be used by many goroutines, and has nothing to close: it is in memory.
type DB struct{ readers []*maxminddb.Reader }

// Open reads databases: one of countries or cities, one of autonomous systems, or one that has both. An error names the
// file that is not one.
func Open(paths ...string) (*DB, error) {
	db := &DB{}
	for _, path := range paths {
		r, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("open the address database %s: %w", path, err)
		}
		db.readers = append(db.readers, r)
	}
	return db, nil
}

// open reads a file whole: one that is mapped and then cut short by an update would end the process.
func open(path string) (*maxminddb.Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%d bytes are more than %d", info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return maxminddb.OpenBytes(content)
}

// record has the fields of the databases of MaxMind, and those of the flat ones that others publish.
type record struct {
	Country struct {
		ISOCode string `maxminddb:"iso_code"`
	} `maxminddb:"country"`
	Registered struct {
		ISOCode string `maxminddb:"iso_code"`
	} `maxminddb:"registered_country"`
	ASN   uint   `maxminddb:"autonomous_system_number"`
	ASOrg string `maxminddb:"autonomous_system_organization"`
}

// flat is for databases whose country is a text.
type flat struct {
	Country string `maxminddb:"country_code"`
}

// Lookup returns what the databases have on an address. A damaged entry counts as missing.
func (db *DB) Lookup(addr netip.Addr) Place {
	var place Place
	addr = addr.Unmap()
	for _, r := range db.readers {
		result := r.Lookup(addr)
		if result.Err() != nil || !result.Found() {
			continue
		}
		var rec record
		if err := result.Decode(&rec); err == nil {
			for _, code := range []string{rec.Country.ISOCode, rec.Registered.ISOCode} {
				if place.Country == "" {
					place.Country = code
				}
			}
			if rec.ASN != 0 {
				place.ASN, place.ASOrg = rec.ASN, rec.ASOrg
			}
		}
		var f flat
		if err := result.Decode(&f); err == nil && place.Country == "" {
			place.Country = f.Country
		}
	}
	return place
}
