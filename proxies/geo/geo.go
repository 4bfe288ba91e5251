// Package geo looks up the country and network of IP addresses in local databases in MaxMind's format (.mmdb).
package geo

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/oschwald/maxminddb-golang/v2"
)

// maxFile limits the size of a database, which is read into memory. The largest published databases have about 100
// MB.
const maxFile = 512 << 20

// A Place holds the data about an address. Unknown fields are zero.
type Place struct {
	Country string // two letters
	ASN     uint
	ASOrg   string
}

// A DB is a set of databases in memory. It is safe for concurrent use and needs no Close.
type DB struct{ readers []*maxminddb.Reader }

// Open reads databases: one of countries or cities and one of autonomous systems, or one with both. An error names
// the invalid file.
func Open(paths ...string) (*DB, error) {
	db := &DB{}
	for _, path := range paths {
		r, err := open(path)
		if err != nil {
			return nil, fmt.Errorf("open address database %s: %w", path, err)
		}
		db.readers = append(db.readers, r)
	}
	return db, nil
}

// open reads a whole file. A memory-mapped file that is truncated by an update would crash the process.
func open(path string) (*maxminddb.Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("file of %d bytes exceeds the limit of %d", info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return maxminddb.OpenBytes(content)
}

// record has the fields of MaxMind's databases and of the flat databases of other vendors.
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

// flat is the record of databases with the country as a string.
type flat struct {
	Country string `maxminddb:"country_code"`
}

// Lookup returns the data about an address. A damaged entry counts as missing.
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
