package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxAudit = 100_000 // number of entries, approximately
	maxPage  = 1000    // entries read for a page
)

// Entry is a mutating call. It contains neither body nor query nor secrets.
type Entry struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"recorded_at"`
	Caller    string    `json:"caller"`              // name of the key, subject of the token, or CommandLine.Name
	CallerID  string    `json:"caller_id,omitempty"` // ID of the key or token
	Role      Role      `json:"role"`
	Operation string    `json:"operation"` // operation ID or route
	Method    string    `json:"method,omitempty"`
	Path      string    `json:"path,omitempty"`
	Created   string    `json:"created,omitempty"` // path of the created resource
	Status    int       `json:"status,omitempty"`  // of the response
	Address   string    `json:"address,omitempty"`
	Request   string    `json:"request_id,omitempty"`
}

// Audit is the log of the last 100,000 mutating calls, in Redis. It is safe for concurrent use.
type Audit struct {
	rdb  redis.UniversalClient
	keys keys
}

// NewAudit returns the audit log.
func NewAudit(rdb redis.UniversalClient) *Audit { return &Audit{rdb: rdb, keys: newKeys()} }

// Add adds an entry. Redis assigns ID and time.
func (a *Audit) Add(ctx context.Context, e Entry) error {
	data, err := json.Marshal(e)
	if err == nil {
		err = a.rdb.XAdd(ctx, &redis.XAddArgs{Stream: a.keys.audit(), MaxLen: maxAudit, Approx: true, Values: []any{"entry", data}}).Err()
	}
	if err != nil {
		return fmt.Errorf("add to the audit log: %w", err)
	}
	return nil
}

// AuditFilter selects entries. Zero fields select all entries.
type AuditFilter struct {
	Caller string    // name or ID of the caller
	Since  time.Time // default: all entries
	Before string    // Next of the previous page; default: the newest entries
	Limit  int       // 1 to 1000; default 100
}

// AuditPage is a page of the log.
type AuditPage struct {
	Entries []Entry // newest first
	Next    string  // value of Before for the next page; "" on the last page
}

// ErrCursor means that AuditFilter.Before is invalid.
var ErrCursor = errors.New("invalid cursor of the audit log; use the cursor of a response")

var entryID = regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}$`)

// List returns a page of the log. With a caller, a page may have fewer entries than the limit although Next is not empty.
func (a *Audit) List(ctx context.Context, f AuditFilter) (page AuditPage, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	from, to, n := "+", "-", min(f.Limit, maxPage)
	if f.Before != "" {
		if !entryID.MatchString(f.Before) {
			return page, ErrCursor
		}
		from = "(" + f.Before
	}
	if !f.Since.IsZero() {
		to = strconv.FormatInt(max(0, f.Since.UnixMilli()), 10)
	}
	if f.Caller != "" {
		n = maxPage
	}
	list, err := a.rdb.XRevRangeN(ctx, a.keys.audit(), from, to, int64(n)).Result()
	if err != nil {
		return page, fmt.Errorf("read the audit log: %w", err)
	}
	for i, m := range list {
		if e := entryOf(m); f.Caller == "" || e.Caller == f.Caller || e.CallerID == f.Caller {
			page.Entries = append(page.Entries, e)
		}
		if full := len(page.Entries) == f.Limit; full || i == n-1 {
			page.Next = m.ID
			return page, nil
		}
	}
	return page, nil
}

// entryOf decodes an entry of the stream.
func entryOf(m redis.XMessage) (e Entry) {
	text, _ := m.Values["entry"].(string)
	_ = json.Unmarshal([]byte(text), &e) // written by Add
	ms, _, _ := strings.Cut(m.ID, "-")
	n, _ := strconv.ParseInt(ms, 10, 64) // Redis created the ID
	e.ID, e.Time = m.ID, time.UnixMilli(n).UTC()
	return e
}
