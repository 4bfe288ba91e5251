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
	maxAudit    = 100_000 // entries that are kept, however young
	maxPage     = 1000    // entries of a page
	maxScan     = 10_000  // entries that are read for a page
	defaultKeep = 90 * 24 * time.Hour
)

// Entry is a changing call. It has no body, no query and no secret.
type Entry struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"recorded_at"`
	Caller    string    `json:"caller"`              // name of the key, subject of the token, or who used the command line
	CallerID  string    `json:"caller_id,omitempty"` // of the key or token
	Role      Role      `json:"role"`
	Operation string    `json:"operation"` // id of the operation, or the route
	Method    string    `json:"method,omitempty"`
	Path      string    `json:"path,omitempty"`
	Job       string    `json:"job_id,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Created   string    `json:"created,omitempty"` // path of what it created
	Status    int       `json:"status,omitempty"`  // of the answer
	Address   string    `json:"address,omitempty"`
	Request   string    `json:"request_id,omitempty"`
}

// Audit is the log of changing calls in Redis: up to about 100,000, and not older than
// a time. It is safe for concurrent use.
type Audit struct {
	rdb  redis.UniversalClient
	keep time.Duration
	keys keys
}

// NewAudit returns the log. keep is how long entries are kept, by default 90 days.
func NewAudit(rdb redis.UniversalClient, keep time.Duration) *Audit {
	if keep <= 0 {
		keep = defaultKeep
	}
	return &Audit{rdb: rdb, keep: keep, keys: newKeys()}
}

// Add adds an entry, whose id and time are set by Redis.
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

// field is a text of an entry.
type field struct {
	name  string
	value *string
}

// fields are the texts of an entry, by their names in Redis.
func (e *Entry) fields() []field {
	return []field{
		{"caller", &e.Caller}, {"id", &e.CallerID}, {"operation", &e.Operation}, {"method", &e.Method}, {"path", &e.Path}, {"created", &e.Created},
		{"job", &e.Job}, {"agent", &e.Agent}, {"address", &e.Address}, {"request", &e.Request},
	}
}

// AuditFilter says which entries to list.
type AuditFilter struct {
	Caller    string    // name or id of the caller. Defaults to all.
	Operation string    // part of an operation, of a path, or of the path of what was created. Defaults to all.
	Since     time.Time // Defaults to all that are kept.
	Until     time.Time // Defaults to now.
	Before    string    // the Next of a page. Defaults to the newest.
	Limit     int       // 1 to 1000. Defaults to 100.
}

// any reports whether the filter selects all entries of its time.
func (f AuditFilter) any() bool { return f.Caller == "" && f.Operation == "" }

// selects reports whether an entry of its time is one of those.
func (f AuditFilter) selects(e Entry) bool {
	caller := f.Caller == "" || e.Caller == f.Caller || e.CallerID == f.Caller
	return caller && (strings.Contains(e.Operation, f.Operation) || strings.Contains(e.Path, f.Operation) || strings.Contains(e.Created, f.Operation))
}

// AuditPage is a part of the log.
type AuditPage struct {
	Entries []Entry // the newest first
	Next    string  // Before of the next page; "" if this is the last
}

// ErrCursor is a wrong AuditFilter.Before.
var ErrCursor = errors.New("this is no cursor of the audit log; use the one of an answer")

// List returns a page of the log. With a filter a page may have fewer entries than
// the limit although there are more: Next says so.
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
	oldest := now.Add(-a.keep) // trimming leaves some that are older
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
			if len(page.Entries) == f.Limit { // and there is one more
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

// validID reports whether a text is the id of an entry.
func validID(id string) bool {
	ms, seq, ok := strings.Cut(id, "-")
	_, err := strconv.ParseUint(ms, 10, 64)
	_, other := strconv.ParseUint(seq, 10, 64)
	return ok && err == nil && other == nil
}

// entryOf reads an entry of the stream.
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
