package access

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxAudit    = 100_000 // maximum number of entries, whatever their age
	maxPage     = 1000    // maximum number of entries per page
	maxScan     = 10_000  // maximum number of entries read for a page
	defaultKeep = 90 * 24 * time.Hour
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
	Job       string    `json:"job_id,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Created   string    `json:"created,omitempty"` // path of the created resource
	Status    int       `json:"status,omitempty"`  // of the response
	Address   string    `json:"address,omitempty"`
	Request   string    `json:"request_id,omitempty"`
}

// Audit is the log of mutating calls in Redis. It is limited to about 100,000 entries and by age. It is safe for concurrent use.
type Audit struct {
	rdb  redis.UniversalClient
	keep time.Duration
	keys keys
}

// NewAudit returns the audit log. keep is the retention of entries, by default 90 days.
func NewAudit(rdb redis.UniversalClient, keep time.Duration) *Audit {
	if keep <= 0 {
		keep = defaultKeep
	}
	return &Audit{rdb: rdb, keep: keep, keys: newKeys()}
}

// Add adds an entry. Redis assigns ID and time.
func (a *Audit) Add(ctx context.Context, e Entry) error {
	args := []any{maxAudit, a.keep.Milliseconds()}
	for _, f := range e.fields() {
		if *f.value != "" {
			args = append(args, f.name, *f.value)
		}
	}
	args = append(args, "role", string(e.Role), "status", e.Status)
	if err := scripts["audit"].Run(ctx, a.rdb, []string{a.keys.audit()}, args...).Err(); err != nil {
		return fmt.Errorf("add to the audit log: %w", err)
	}
	return nil
}

// field is a string field of an entry.
type field struct {
	name  string
	value *string
}

// fields returns the string fields of an entry by their names in Redis.
func (e *Entry) fields() []field {
	return []field{
		{"caller", &e.Caller}, {"id", &e.CallerID}, {"operation", &e.Operation}, {"method", &e.Method}, {"path", &e.Path}, {"created", &e.Created},
		{"job", &e.Job}, {"agent", &e.Agent}, {"address", &e.Address}, {"request", &e.Request},
	}
}

// AuditFilter selects entries. Zero fields select all entries.
type AuditFilter struct {
	Caller    string    // name or ID of the caller
	Operation string    // substring of the operation, the path or the path of the created resource
	Since     time.Time // default: all entries
	Until     time.Time // default: now
	Before    string    // Next of the previous page; default: the newest entries
	Limit     int       // 1 to 1000; default 100
}

// any reports whether the filter selects all entries in its time range.
func (f AuditFilter) any() bool { return f.Caller == "" && f.Operation == "" }

// selects reports whether the filter selects an entry in its time range.
func (f AuditFilter) selects(e Entry) bool {
	caller := f.Caller == "" || e.Caller == f.Caller || e.CallerID == f.Caller
	return caller && (strings.Contains(e.Operation, f.Operation) || strings.Contains(e.Path, f.Operation) || strings.Contains(e.Created, f.Operation))
}

// AuditPage is a page of the log.
type AuditPage struct {
	Entries []Entry // newest first
	Next    string  // value of Before for the next page; "" on the last page
}

// ErrCursor means that AuditFilter.Before is invalid.
var ErrCursor = errors.New("invalid cursor of the audit log; use the cursor of a response")

// List returns a page of the log. With a filter, a page may have fewer entries than the limit although Next is not empty.
func (a *Audit) List(ctx context.Context, f AuditFilter) (AuditPage, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, maxPage)
	from := "+"
	if !f.Until.IsZero() {
		from = "(" + strconv.FormatInt(f.Until.UnixMilli(), 10) + "-0"
	}
	if f.Before != "" {
		if !validID(f.Before) {
			return AuditPage{}, ErrCursor
		}
		from = "(" + f.Before
	}
	now, err := a.rdb.Time(ctx).Result()
	if err != nil {
		return AuditPage{}, fmt.Errorf("read the audit log: %w", err)
	}
	oldest := now.Add(-a.keep) // trimming is approximate
	if f.Since.After(oldest) {
		oldest = f.Since
	}
	var page AuditPage
	for scanned := 0; scanned < maxScan; {
		n := min(maxPage, maxScan-scanned)
		if f.any() {
			n = f.Limit + 1 - len(page.Entries)
		}
		list, err := a.rdb.XRevRangeN(ctx, a.keys.audit(), from, strconv.FormatInt(oldest.UnixMilli(), 10), int64(n)).Result()
		if err != nil {
			return AuditPage{}, fmt.Errorf("read the audit log: %w", err)
		}
		for _, m := range list {
			if len(page.Entries) == f.Limit { // there is another entry
				return page, nil
			}
			if e := entryOf(m); f.selects(e) {
				page.Entries = append(page.Entries, e)
			}
			page.Next = m.ID
		}
		if scanned += len(list); len(list) < n {
			page.Next = ""
			return page, nil
		}
		from = "(" + page.Next
	}
	return page, nil
}

// validID reports whether id is a valid entry ID.
func validID(id string) bool {
	ms, seq, ok := strings.Cut(id, "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	_, other := strconv.ParseUint(seq, 10, 64)
	return ok && err == nil && other == nil
}

// entryOf decodes an entry of the stream.
func entryOf(m redis.XMessage) Entry {
	text := func(name string) string { s, _ := m.Values[name].(string); return s }
	e := Entry{ID: m.ID, Role: Role(text("role"))}
	for _, f := range e.fields() {
		*f.value = text(f.name)
	}
	e.Status, _ = strconv.Atoi(text("status"))
	ms, _, _ := strings.Cut(m.ID, "-")
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
		e.Time = time.UnixMilli(n).UTC()
	}
	return e
}
