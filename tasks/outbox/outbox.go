// Package outbox sends workflows from database transactions: a workflow is sent if and only if the transaction commits.
//
// [Add] inserts rows into the table muster_outbox, in the transaction of the caller. A [Relay] sends the rows that were committed and deletes
// them. Run one in each process or in some; each row is sent by one of them. The table is made by [Schema]. It works with any driver of
// database/sql for PostgreSQL, MySQL 8 (MariaDB 10.6) and SQLite (with a busy timeout).
//
// # Exactly once
//
// A row is stored with the ID of its workflow. A relay that was killed, or had no database, before it deleted the row has possibly sent it.
// Its claim expires, and then the row is sent again: if the workflow exists, nothing happens, and the row is deleted. So a row is sent
// twice only if no relay has deleted it by the time at which its workflow has expired: [tasks.Retention] after its end, by default a day.
//
// A send that finds another workflow with its [tasks.ID] or [tasks.Unique] key is complete, as its error would be [tasks.ErrDuplicate].
//
// # Refused rows
//
// A row stays in the table, with the time and the error, if it cannot be decoded or its send returns [tasks.ErrInvalid], for example because its
// [tasks.Deadline] has passed. [Inspect] counts and lists these rows. Delete them, or let the relay send them again:
//
//	UPDATE muster_outbox SET refused_at = 0 WHERE refused_at > 0
package outbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"muster/internal/wrap"
	"muster/tasks"
)

// Dialect is the SQL of a database.
type Dialect string

// The dialects.
const (
	PostgreSQL Dialect = "postgresql"
	MySQL      Dialect = "mysql" // 8.0.13, or MariaDB 10.6
	SQLite     Dialect = "sqlite"
)

// dialect has the differences between databases.
type dialect struct {
	now       string // the time in Unix ms
	seq, text string // types of columns
	end       string // of the schema
	begin     string // first statement of a transaction that claims rows
	lock      string // end of the statement that selects them
	mark      string // the first parameter of a statement
	isolation sql.IsolationLevel
}

const index = ");\nCREATE INDEX IF NOT EXISTS muster_outbox_waiting ON muster_outbox (refused_at, seq);"

var dialects = map[Dialect]*dialect{
	PostgreSQL: {
		now: "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)", seq: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", text: "TEXT", end: index,
		lock: " FOR UPDATE SKIP LOCKED", mark: "$1", isolation: sql.LevelReadCommitted,
	},
	MySQL: {
		now: "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)", seq: "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY", text: "MEDIUMTEXT CHARACTER SET utf8mb4",
		end:  ",\n KEY muster_outbox_waiting (refused_at, seq)) ENGINE = InnoDB;",
		lock: " FOR UPDATE SKIP LOCKED", mark: "?", isolation: sql.LevelReadCommitted, // REPEATABLE READ would block inserts
	},
	SQLite: {
		now:   "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
		seq:   "INTEGER PRIMARY KEY AUTOINCREMENT", // no number is used again: a relay may be about to delete it
		text:  "TEXT",
		end:   index,
		begin: "DELETE FROM muster_outbox WHERE 0", // waits for other writers: a transaction that has read cannot
		mark:  "?",
	},
}

// Schema returns the statements that create the table, if it does not exist, for a migration. Times are in Unix ms.
func Schema(d Dialect) string {
	c := dialects[d]
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS muster_outbox (
 seq %s,
 workflow VARCHAR(100) NOT NULL,
 work %s NOT NULL, -- JSON of a tasks.Sending, in base64
 added_at BIGINT NOT NULL DEFAULT (%s),
 claimed_until BIGINT NOT NULL DEFAULT 0, -- by a relay
 refused_at BIGINT NOT NULL DEFAULT 0,
 error %s%s`, c.seq, c.text, c.now, c.text, c.end)
}

// maxStatement is the size in bytes from which an insert has no more rows.
const maxStatement = 1 << 20

// Add adds sends to the outbox in tx, and returns the IDs of their workflows. After the commit a [Relay] sends them: until then a Wait for one
// returns [tasks.ErrNotFound], and durations such as that of [tasks.In] count from then. [tasks.SendDefaults] do not apply. A send has at most
// 1 MiB. If one is invalid, nothing is inserted and the error is [tasks.ErrInvalid].
func Add(ctx context.Context, tx *sql.Tx, sends ...tasks.Sending) (ids []string, err error) {
	// Parameters are written differently in each dialect, and a Tx does not tell its own. IDs and base64 need no quoting.
	var inserts [][]byte
	for i, s := range sends {
		raw, err := s.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("outbox: send %d: %w", i, err)
		}
		var head struct{ ID string }
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, fmt.Errorf("outbox: send %d: %w", i, err)
		}
		ids = append(ids, head.ID)
		between := ","
		if last := len(inserts) - 1; last < 0 || len(inserts[last])+len(raw) > maxStatement {
			inserts, between = append(inserts, nil), "INSERT INTO muster_outbox (workflow, work) VALUES "
		}
		insert := &inserts[len(inserts)-1]
		*insert = fmt.Appendf(*insert, "%s('%s','%s')", between, head.ID, base64.StdEncoding.EncodeToString(raw))
	}
	for _, insert := range inserts {
		if _, err := tx.ExecContext(ctx, string(insert)); err != nil {
			return nil, wrap.Err(err, "add to outbox")
		}
	}
	return ids, nil
}

// Status is the state of an outbox.
type Status struct {
	Waiting int       // rows that were not sent yet
	Oldest  time.Time // when the first of them was added; zero if there is none
	Refused int       // rows that will not be sent
	Rows    []Refusal // the first 100 of them
}

// Refusal is a row that was refused.
type Refusal struct {
	Seq      int64
	Workflow string // ID
	Added    time.Time
	Refused  time.Time
	Error    string
}

// Inspect returns the state of the outbox in db.
func Inspect(ctx context.Context, db *sql.DB) (*Status, error) {
	var s Status
	var all int
	var oldest sql.NullInt64
	const counts = "SELECT COUNT(*), COUNT(NULLIF(refused_at, 0)), MIN(CASE WHEN refused_at = 0 THEN added_at END) FROM muster_outbox"
	err := db.QueryRowContext(ctx, counts).Scan(&all, &s.Refused, &oldest)
	if s.Waiting = all - s.Refused; oldest.Valid {
		s.Oldest = time.UnixMilli(oldest.Int64)
	}
	if err == nil && s.Refused > 0 {
		err = each(ctx, db, "SELECT seq, workflow, added_at, refused_at, error FROM muster_outbox WHERE refused_at > 0 ORDER BY seq LIMIT 100", func(rows *sql.Rows) error {
			var r Refusal
			var added, refused int64
			err := rows.Scan(&r.Seq, &r.Workflow, &added, &refused, &r.Error)
			r.Added, r.Refused = time.UnixMilli(added), time.UnixMilli(refused)
			s.Rows = append(s.Rows, r)
			return err
		})
	}
	return &s, wrap.Err(err, "inspect outbox")
}

// each calls f for each row of a query.
func each(ctx context.Context, q interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, query string, f func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err has its error
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
