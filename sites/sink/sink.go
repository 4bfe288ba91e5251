package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/addressfilter"
)

// Record is a record on its way to a sink.
type Record struct {
	Site, Job string
	Type, Key string // with Site what tells it from others
	URL       string
	Data      json.RawMessage // the record, a JSON object
	Change    string          // new, changed, unchanged or gone since the job before
	Diff      json.RawMessage // of a changed one: {"field": [old, new]}; else nil
	At        time.Time       // when it was written down first in this job
}

// Sink keeps records beyond the files of a job. It is for one goroutine.
type Sink interface {
	// Put keeps records and returns how many of them, from the first on, are
	// safe: all when the error is nil. Given the same again, after an error or
	// a crash, it keeps them once. It may block until ctx ends.
	Put(ctx context.Context, records []Record) (int, error)
	// Name says which sink it is, without secrets.
	Name() string
	Close() error
}

// Options are what a sink may need beside its address.
type Options struct {
	Dir    string // where a relative path of SQLite is. Defaults to the current folder.
	Secret string // signs what a webhook gets. Defaults to none: no signature.
	// Filter says which addresses that are not public the name of a webhook may stand for. One that is written as an
	// address is connected to in any case. Defaults to none.
	Filter *addressfilter.Filter
}

// Check tells what is wrong with the address of a sink; see Open. A password
// in an address is refused: addresses are shown, and stored with jobs.
func Check(address string) error {
	_, _, err := parse(address)
	return err
}

// Open opens the sink with an address:
//
//	sqlite:PATH                   a file; made when it is not there
//	postgres://USER@HOST/DB       tables in a PostgreSQL; the password comes from PGPASSWORD or ~/.pgpass
//	http://… or https://…         a webhook, which gets batches of records
//
// It makes what it needs there, so it fails while the sink is away.
func Open(ctx context.Context, address string, o Options) (Sink, error) {
	kind, rest, err := parse(address)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "sqlite":
		if !filepath.IsAbs(rest) {
			rest = filepath.Join(o.Dir, rest)
		}
		return openSQLite(ctx, rest)
	case "postgres":
		return openPostgres(ctx, rest)
	}
	return newWebhook(rest, o), nil
}

func parse(address string) (kind, rest string, err error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return "", "", fmt.Errorf("sink %q: no scheme; use sqlite:PATH, postgres://USER@HOST/DB or https://HOST/PATH", address)
	}
	switch scheme {
	case "sqlite":
		if rest == "" || strings.ContainsAny(rest, "?#") {
			return "", "", errors.New("sink sqlite: name a file, as in sqlite:records.db")
		}
		return "sqlite", rest, nil
	case "postgres", "postgresql", "http", "https":
		u, err := url.Parse(address)
		if err != nil {
			return "", "", fmt.Errorf("sink of scheme %s: not a URL", scheme) // the error would repeat it
		}
		if _, has := u.User.Password(); has || u.Query().Has("password") {
			return "", "", fmt.Errorf("sink of scheme %s: a password does not belong into an address; PostgreSQL takes it from PGPASSWORD or ~/.pgpass, and a webhook checks the signature", scheme)
		}
		if scheme[0] == 'h' {
			if u.Host == "" {
				return "", "", fmt.Errorf("sink %s: no host", u.Redacted())
			}
			return "webhook", address, nil
		}
		return "postgres", address, nil
	}
	return "", "", fmt.Errorf("sink %q: no such kind; use sqlite:PATH, postgres://USER@HOST/DB or https://HOST/PATH", scheme)
}

// latest leaves of records with one type and key the last.
func latest(records []Record) []Record {
	at := make(map[[2]string]int, len(records))
	out := make([]Record, 0, len(records))
	for _, r := range records {
		id := [2]string{r.Type, r.Key}
		if i, ok := at[id]; ok {
			out[i] = r
			continue
		}
		at[id] = len(out)
		out = append(out, r)
	}
	return out
}
