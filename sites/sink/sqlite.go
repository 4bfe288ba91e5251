package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver: SQLite without cgo
)

var sqliteMigrations = []string{`
CREATE TABLE muster_records (
 site TEXT NOT NULL, type TEXT NOT NULL, record_key TEXT NOT NULL, job TEXT NOT NULL, url TEXT NOT NULL,
 data TEXT NOT NULL, first_seen TEXT NOT NULL, last_seen TEXT NOT NULL, changed_at TEXT, gone_at TEXT,
 PRIMARY KEY (site, type, record_key)) WITHOUT ROWID;
CREATE TABLE muster_changes (
 site TEXT NOT NULL, type TEXT NOT NULL, record_key TEXT NOT NULL, job TEXT NOT NULL, change TEXT NOT NULL,
 diff TEXT, at TEXT NOT NULL,
 PRIMARY KEY (site, type, record_key, job)) WITHOUT ROWID;
`}

// openSQLite opens a database file. Other programs may read it concurrently; a write waits up to five seconds for another writer.
func openSQLite(ctx context.Context, path string) (Sink, error) {
	name := "sqlite:" + path
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of %s: %w", name, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600) // SQLite would create it with 0644
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: url.Values{
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	db.SetMaxOpenConns(1)
	if err := migrate(ctx, db, "", sqliteMigrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), db.Close())
	}
	return &database{db: db, name: name, time: func(t time.Time) any { return t.UTC().Format("2006-01-02T15:04:05.000Z") }}, nil
}
