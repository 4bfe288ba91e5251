package sink

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var postgresMigrations = []string{`
CREATE TABLE muster_records (
 site text NOT NULL, type text NOT NULL, record_key text NOT NULL, job text NOT NULL, url text NOT NULL,
 data jsonb NOT NULL, first_seen timestamptz NOT NULL, last_seen timestamptz NOT NULL, changed_at timestamptz, gone_at timestamptz,
 PRIMARY KEY (site, type, record_key));
CREATE TABLE muster_changes (
 site text NOT NULL, type text NOT NULL, record_key text NOT NULL, job text NOT NULL, change text NOT NULL,
 diff jsonb, at timestamptz NOT NULL,
 PRIMARY KEY (site, type, record_key, job));
`}

// migrationLock ensures that one process at a time migrates the database.
const migrationLock = `SELECT pg_advisory_xact_lock(7281936405528)`

// idleLimit aborts the transaction of a process that stopped inside it, because its locks would block all others.
const idleLimit = 30 * time.Second

// openPostgres opens the tables of a PostgreSQL database.
func openPostgres(ctx context.Context, address string) (Sink, error) {
	name := "postgres"
	if u, err := url.Parse(address); err == nil {
		name = "postgres://" + u.Host + u.Path
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("open %s: invalid address; use postgres://USER@HOST:PORT/DB", name)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(2)
	db.SetConnMaxIdleTime(time.Minute)
	if err := migrate(ctx, db, migrationLock, postgresMigrations); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), db.Close())
	}
	return &database{
		db: db, name: name, each: idleStatement(idleLimit), time: func(t time.Time) any { return t.UTC() },
		text: func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd") },
	}, nil
}

func idleStatement(limit time.Duration) string {
	return fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", limit.Milliseconds())
}
