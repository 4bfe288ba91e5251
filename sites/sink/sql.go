package sink

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"
	_ "modernc.org/sqlite" // the driver: SQLite without cgo

	"muster/internal/wrap"
)

// database is a sink in the tables of an SQL database:
//
//	muster_records   the current state of each record, by site, type and key
//	muster_changes   new, changed and missing records by job, with the diffs
//
// Opening the database creates them.
type database struct{ *DB }

// DB is an SQL database for tables of the caller.
type DB struct {
	*sql.DB
	Name string                  // address without user and password
	Find string                  // function of a string and a part of it, whose result is above 0 if it has that part
	Time func(time.Time) any     // converts a time for the database
	Text func(string) string     // replaces characters that the database cannot store
	JSON func(raw []byte) []byte // likewise in JSON
	each string                  // first statement of every transaction; may be ""
}

// Tables are statements that create tables unless they exist, of SQLite and PostgreSQL.
type Tables struct{ SQLite, Postgres []string }

// OpenDB opens a database with an address of the first two forms of [Open], and creates tables.
func OpenDB(ctx context.Context, address, dir string, t Tables) (*DB, error) {
	kind, rest, err := parse(address)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "sqlite":
		if !filepath.IsAbs(rest) {
			rest = filepath.Join(dir, rest)
		}
		return openSQLite(ctx, rest, t.SQLite)
	case "postgres":
		return openPostgres(ctx, rest, t.Postgres)
	}
	return nil, fmt.Errorf("sink of scheme %s: not a database", kind)
}

// create creates missing tables in one transaction.
func create(ctx context.Context, db *sql.DB, statements ...string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return tx.Commit()
}

const (
	upsertRecord = `INSERT INTO muster_records (site, type, record_key, job, url, data, first_seen, last_seen, changed_at, gone_at) VALUES `
	// A record that is put again after a crash keeps its times of first occurrence and last change: only a real change sets them.
	onKnownRecord = ` ON CONFLICT (site, type, record_key) DO UPDATE SET
 job = excluded.job, url = excluded.url, data = excluded.data, last_seen = excluded.last_seen,
 changed_at = COALESCE(excluded.changed_at, muster_records.changed_at), gone_at = excluded.gone_at`
	insertChange  = `INSERT INTO muster_changes (site, type, record_key, job, change, diff, at) VALUES `
	onKnownChange = ` ON CONFLICT (site, type, record_key, job) DO NOTHING`
	rowsAtOnce    = 100
)

// Put implements Sink in one transaction.
func (d *database) Put(ctx context.Context, records []Record) (int, error) {
	if err := d.put(ctx, records); err != nil {
		return 0, fmt.Errorf("write to %s: %w", d.Name, err)
	}
	return len(records), nil
}

// Begin begins a transaction, which ends if its process stops.
func (d *DB) Begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil || d.each == "" {
		return tx, err
	}
	if _, err := tx.ExecContext(ctx, d.each); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

func (d *database) put(ctx context.Context, records []Record) error {
	tx, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	for part := range slices.Chunk(latest(records), rowsAtOnce) {
		var rows, changes []any
		for _, r := range part {
			r = d.fitting(r)
			at := d.Time(r.At)
			var changed, gone any
			if r.Change != "unchanged" {
				changed = at
				var diff any
				if r.Diff != nil {
					diff = string(r.Diff)
				}
				changes = append(changes, r.Site, r.Type, r.Key, r.Job, r.Change, diff, at)
			}
			if r.Change == "gone" {
				gone = at
			}
			rows = append(rows, r.Site, r.Type, r.Key, r.Job, r.URL, string(r.Data), at, at, changed, gone)
		}
		if err := Insert(ctx, tx, upsertRecord, onKnownRecord, 10, rows); err != nil {
			return err
		}
		if err := Insert(ctx, tx, insertChange, onKnownChange, 7, changes); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Insert inserts rows with a number of columns in one statement.
func Insert(ctx context.Context, tx *sql.Tx, head, tail string, columns int, args []any) error {
	if len(args) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString(head)
	for i := range args {
		switch {
		case i%columns > 0:
			b.WriteByte(',')
		case i > 0:
			b.WriteString("),(")
		default:
			b.WriteByte('(')
		}
		fmt.Fprintf(&b, "$%d", i+1)
	}
	b.WriteString(")" + tail)
	_, err := tx.ExecContext(ctx, b.String(), args...)
	return err
}

// Close closes the database.
func (d *DB) Close() error {
	return wrap.Err(d.DB.Close(), "close %s", d.Name)
}

// maxKey is the longest key that PostgreSQL can index.
const maxKey = 1024

// fitting converts a record to a form that the database can store.
func (d *database) fitting(r Record) Record {
	r.Key, r.URL = d.Text(r.Key), d.Text(r.URL)
	r.Data, r.Diff = d.JSON(r.Data), d.JSON(r.Diff)
	if len(r.Key) > maxKey {
		sum := sha256.Sum256([]byte(r.Key))
		r.Key = strings.ToValidUTF8(r.Key[:maxKey-100], "") + "#" + hex.EncodeToString(sum[:])
	}
	return r
}

// noNUL replaces escaped NULs in JSON, which PostgreSQL rejects.
func noNUL(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u0000`)) {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			out = append(out, data[i])
			continue
		}
		if bytes.HasPrefix(data[i:], []byte(`\u0000`)) {
			out = append(out, `\ufffd`...)
			i += 5
			continue
		}
		out = append(out, data[i:min(i+2, len(data))]...) // any escape, including a backslash
		i++
	}
	return out
}

var sqliteTables = []string{`CREATE TABLE IF NOT EXISTS muster_records (
 site TEXT NOT NULL, type TEXT NOT NULL, record_key TEXT NOT NULL, job TEXT NOT NULL, url TEXT NOT NULL,
 data TEXT NOT NULL, first_seen TEXT NOT NULL, last_seen TEXT NOT NULL, changed_at TEXT, gone_at TEXT,
 PRIMARY KEY (site, type, record_key)) WITHOUT ROWID`, `CREATE TABLE IF NOT EXISTS muster_changes (
 site TEXT NOT NULL, type TEXT NOT NULL, record_key TEXT NOT NULL, job TEXT NOT NULL, change TEXT NOT NULL,
 diff TEXT, at TEXT NOT NULL,
 PRIMARY KEY (site, type, record_key, job)) WITHOUT ROWID`}

// openSQLite opens a database file. Other programs may read it concurrently; a write waits up to five seconds for another writer.
func openSQLite(ctx context.Context, path string, tables []string) (*DB, error) {
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
	if err := create(ctx, db, tables...); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), db.Close())
	}
	return &DB{
		DB: db, Name: name, Find: "instr", Time: func(t time.Time) any { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
		Text: func(s string) string { return s }, JSON: func(raw []byte) []byte { return raw },
	}, nil
}

// oneCreates ensures that one process at a time creates tables.
const oneCreates = `SELECT pg_advisory_xact_lock(7281936405528)`

var postgresTables = []string{`CREATE TABLE IF NOT EXISTS muster_records (
 site text NOT NULL, type text NOT NULL, record_key text NOT NULL, job text NOT NULL, url text NOT NULL,
 data jsonb NOT NULL, first_seen timestamptz NOT NULL, last_seen timestamptz NOT NULL, changed_at timestamptz, gone_at timestamptz,
 PRIMARY KEY (site, type, record_key))`, `CREATE TABLE IF NOT EXISTS muster_changes (
 site text NOT NULL, type text NOT NULL, record_key text NOT NULL, job text NOT NULL, change text NOT NULL,
 diff jsonb, at timestamptz NOT NULL,
 PRIMARY KEY (site, type, record_key, job))`}

// idleLimit aborts the transaction of a process that stopped inside it, because its locks would block all others.
const idleLimit = 30 * time.Second

// openPostgres opens a PostgreSQL database.
func openPostgres(ctx context.Context, address string, tables []string) (*DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("open postgres: invalid address; use postgres://USER@HOST:PORT/DB")
	}
	name := "postgres://" + u.Host + u.Path
	cfg, err := pq.NewConfig(address)
	if err != nil {
		return nil, fmt.Errorf("open %s: invalid address; use postgres://USER@HOST:PORT/DB", name)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(2)
	db.SetConnMaxIdleTime(time.Minute)
	if err := create(ctx, db, append([]string{oneCreates}, tables...)...); err != nil {
		if errors.Is(err, pq.ErrSSLNotSupported) {
			err = fmt.Errorf("%w; append ?sslmode=disable if the network is trusted", err)
		}
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), db.Close())
	}
	return &DB{
		DB: db, Name: name, Find: "strpos", each: idleStatement(idleLimit), Time: func(t time.Time) any { return t.UTC() },
		Text: func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd") }, JSON: noNUL,
	}, nil
}

func idleStatement(limit time.Duration) string {
	return fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", limit.Milliseconds())
}
