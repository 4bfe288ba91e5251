package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"muster/internal/addressfilter"
)

// Record is a record for a sink. Site, Type and Key identify it. The JSON has what webhooks receive for each record.
type Record struct {
	Site   string          `json:"-"`
	Job    string          `json:"-"`
	Type   string          `json:"type"`
	Key    string          `json:"key"`
	URL    string          `json:"url"`
	Change string          `json:"change"`           // new, changed, unchanged or gone since the previous job
	Diff   json.RawMessage `json:"diff,omitempty"`   // of a changed record: {"field": [old, new]}; or nil
	Data   json.RawMessage `json:"record,omitempty"` // record as a JSON object
	At     time.Time       `json:"-"`                // first write in this job
}

// A Sink stores records outside the files of a job. It is not safe for concurrent use.
type Sink interface {
	// Put stores records and returns how many of them, from the first one, are stored: all if the error is nil. Records that are
	// put again, after an error or a crash, are stored once. It may block until ctx is done.
	Put(ctx context.Context, records []Record) (int, error)
	Close() error
}

// Options are the options of a sink in addition to its address.
type Options struct {
	Dir    string // base of relative SQLite paths. Defaults to the current directory.
	Secret string // signs the requests to a webhook; see webhook.CheckSecret. Defaults to none: no signature.
	// Filter allows webhooks at names with non-public addresses. A webhook with a literal address is always allowed. Defaults to
	// none.
	Filter *addressfilter.Filter
}

// Check returns an error for an invalid address of a sink; see Open. An address with a password is invalid, because addresses are
// displayed and stored with jobs.
func Check(address string) error {
	_, _, err := parse(address)
	return err
}

// Open opens the sink with an address:
//
//	sqlite:PATH                   a file; created if it does not exist
//	postgres://USER@HOST/DB       tables in a PostgreSQL, by TLS unless ?sslmode=disable; the password comes from PGPASSWORD or ~/.pgpass
//	http://… or https://…         a webhook, which gets batches of records
//	s3://BUCKET/PREFIX            a bucket of an S3 store, which gets the finished files; see Uploader
//
// It creates tables, so it fails if the sink is not available.
func Open(ctx context.Context, address string, o Options) (Sink, error) {
	kind, rest, err := parse(address)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "s3":
		return openBucket(ctx, rest)
	case "webhook":
		return newPoster(rest, o)
	}
	db, err := OpenDB(ctx, address, o.Dir, Tables{sqliteTables, postgresTables})
	if err != nil {
		return nil, err
	}
	return &database{db}, nil
}

func parse(address string) (kind, rest string, err error) {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok {
		return "", "", fmt.Errorf("sink %q: no scheme; use "+kinds, address)
	}
	switch scheme {
	case "sqlite":
		if rest == "" || strings.ContainsAny(rest, "?#") {
			return "", "", errors.New("sink sqlite: name a file, as in sqlite:records.db")
		}
		return "sqlite", rest, nil
	case "s3":
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" {
			return "", "", errors.New("sink s3: want s3://BUCKET/PREFIX; keys, region and endpoint are in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL")
		}
		return "s3", address, nil
	case "postgres", "postgresql", "http", "https":
		u, err := url.Parse(address)
		if err != nil || !strings.HasPrefix(rest, "//") { // the errors do not repeat an address, which may contain a password
			return "", "", fmt.Errorf("sink of scheme %s: not a URL, such as %s://HOST/PATH", scheme, scheme)
		}
		if _, has := u.User.Password(); has || u.Query().Has("password") {
			return "", "", fmt.Errorf("sink of scheme %s: an address must not contain a password; PostgreSQL takes it from PGPASSWORD or ~/.pgpass, and a webhook checks the signature", scheme)
		}
		if scheme[0] == 'h' {
			if u.Host == "" {
				return "", "", fmt.Errorf("sink of scheme %s: no host, as in %s://HOST/PATH", scheme, scheme)
			}
			return "webhook", address, nil
		}
		return "postgres", address, nil
	}
	return "", "", fmt.Errorf("sink %q: unknown kind; use "+kinds, scheme)
}

const kinds = "sqlite:PATH, postgres://USER@HOST/DB, s3://BUCKET/PREFIX or https://HOST/PATH"

// latest returns the last record of each type and key.
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
