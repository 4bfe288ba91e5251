package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/orchestrator/access"
)

type auditInput struct {
	Caller string    `query:"caller" maxLength:"200" doc:"name or id of a caller"`
	Since  time.Time `query:"since" doc:"leave out what was before" example:"2026-11-01T00:00:00Z"`
	Cursor string    `query:"cursor" maxLength:"50" doc:"the next of the page before"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type auditOutput struct {
	Body struct {
		Entries []access.Entry `json:"entries" doc:"the newest first"`
		Next    string         `json:"next,omitempty" doc:"cursor of the next page; absent on the last. With caller a page may be short, or empty, and still have one."`
	} `nameHint:"AuditLog"`
}

// addAudit adds the audit log.
func addAudit(s *server) {
	op := describe(s, http.MethodGet, "/audit", "listAudit", tagAccess, "Who changed what: the changing calls and their answers")
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, in *auditInput) (*auditOutput, error) {
		page, err := s.cfg.Audit.List(ctx, access.AuditFilter{Caller: in.Caller, Since: in.Since, Before: in.Cursor, Limit: in.Limit})
		if errors.Is(err, access.ErrCursor) {
			return nil, badField("query.cursor", "%v", err)
		}
		out := &auditOutput{}
		out.Body.Entries, out.Body.Next = orEmpty(page.Entries), page.Next
		return out, err
	})
}
