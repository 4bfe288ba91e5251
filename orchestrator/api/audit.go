package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

type auditInput struct {
	Caller string    `query:"caller" maxLength:"200" doc:"name or id of a caller"`
	Since  time.Time `query:"since" doc:"only entries since this time" example:"2026-11-01T00:00:00Z"`
	Cursor string    `query:"cursor" maxLength:"50" doc:"next of the previous page"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"entries on a page"`
}

// addAudit adds the audit log.
func addAudit(s *server) {
	op := describe(s, http.MethodGet, "/v1/audit", "listAudit", tagAccess, "List mutating requests with their callers and statuses, the newest first")
	op.Description = "With caller, a page may be short or empty and still have next."
	needs(&op, access.Admin)
	route(s, op, 0, body(func(ctx context.Context, in *auditInput) (out client.Page[access.Entry], err error) {
		page, err := s.cfg.Audit.List(ctx, access.AuditFilter{Caller: in.Caller, Since: in.Since, Before: in.Cursor, Limit: in.Limit})
		if errors.Is(err, access.ErrCursor) {
			return out, badField("query.cursor", "%v", err)
		}
		return client.Page[access.Entry]{Data: orEmpty(page.Entries), Next: page.Next}, err
	}))
}
