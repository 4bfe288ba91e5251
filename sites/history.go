package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/sites/ledger"
)

// ErrNoRecord means that the ledger of a site has no such record.
var ErrNoRecord = errors.New("no such record in the ledger, which each scrape updates at its end; give its _key or _url")

// History is what the ledger of a site knows of a record.
type History struct {
	Type    string          `json:"type"`
	Key     string          `json:"key"`
	First   time.Time       `json:"first_seen"`
	Last    time.Time       `json:"last_seen"`
	Missed  int             `json:"missed,omitempty"` // complete scrapes without the record since then
	Gone    bool            `json:"gone"`
	Changes []RecordChange  `json:"changes"` // the last ten, newest last
	Record  json.RawMessage `json:"record"`
}

// RecordChange is a change of a record.
type RecordChange struct {
	At     time.Time                    `json:"at"`
	Fields map[string][]json.RawMessage `json:"fields"` // old and new value of each changed field
}

// maxHistories limits the records with one URL.
const maxHistories = 100

// History returns the records of a site with a key or URL, according to the ledger in the service's OutDir. The error is ErrNoRecord
// if there is none.
func (s *Service) History(ctx context.Context, site, key string) ([]History, error) {
	if err := s.Site(ctx, site); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.cfg.OutDir, filepath.Base(site), "ledger")
	books, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the ledgers of %s: %w", site, err)
	}
	var list []History
	for _, book := range books {
		typ, ok := strings.CutSuffix(book.Name(), ".ledger")
		if !ok || strings.HasPrefix(typ, "_") || strings.HasPrefix(typ, ".") {
			continue
		}
		found, err := ledger.Search(filepath.Join(dir, book.Name()), key, maxHistories)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			list = append(list, historyOf(typ, e))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("site %s, record %q: %w", site, key, ErrNoRecord)
	}
	return list, nil
}

func historyOf(typ string, e ledger.Entry) History {
	h := History{
		Type: typ, Key: e.Key, First: time.Unix(e.First, 0).UTC(), Last: time.Unix(e.Last, 0).UTC(), Missed: e.Missed, Gone: e.Missed > 0,
		Changes: []RecordChange{}, Record: e.Record,
	}
	for _, step := range e.History {
		c := RecordChange{At: time.Unix(step.At, 0).UTC(), Fields: map[string][]json.RawMessage{}}
		for name, values := range step.Fields {
			c.Fields[name] = slices.Clone(values[:])
		}
		h.Changes = append(h.Changes, c)
	}
	return h
}
