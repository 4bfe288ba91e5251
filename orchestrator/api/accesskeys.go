package api

import (
	"context"
	"errors"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

type newKeyOutput struct {
	Location string `header:"Location" doc:"path of the key"`
	Body     client.CreatedKey
}

func storedKey(k access.Key) client.Key { return client.Key{Key: k, State: k.State(time.Now())} }

// addKeys adds the operations on stored keys.
func addKeys(s *server) {
	keys := s.cfg.Keys
	implement(s, client.GetCaller, func(ctx context.Context, _ *client.None) (client.Caller, error) {
		c := access.CallerOf(ctx)
		return client.Caller{Name: c.Name, ID: c.ID, Role: c.Role}, nil
	})
	implement(s, client.ListKeys, func(ctx context.Context, _ *client.None) (client.Page[client.Key], error) {
		list, err := keys.List(ctx)
		out := client.Page[client.Key]{Data: []client.Key{}}
		for _, k := range list {
			out.Data = append(out.Data, storedKey(k))
		}
		return out, err
	})
	implementOutput(s, client.CreateKey, func(ctx context.Context, in *client.With[client.NewKey]) (*newKeyOutput, error) {
		n := access.NewKey{Name: in.Body.Name, Role: access.Role(in.Body.Role), AgentRoles: in.Body.AgentRoles}
		if in.Body.Expires != nil {
			n.Expires = *in.Body.Expires
		}
		k, secret, err := keys.Create(ctx, n)
		if err != nil {
			return nil, keyProblem(err, "body.")
		}
		return &newKeyOutput{Location: "/v1/keys/" + k.ID, Body: client.CreatedKey{Key: storedKey(k), Secret: secret}}, nil
	})
	implement(s, client.RevokeKey, func(ctx context.Context, in *client.KeyPath) (out client.Key, err error) {
		k, err := keys.Revoke(ctx, in.ID)
		if err != nil {
			return out, keyProblem(err, "path.")
		}
		return storedKey(k), nil
	})
	if s.cfg.Audit == nil {
		return
	}
	implement(s, client.ListAudit, func(ctx context.Context, in *client.AuditFilter) (out client.Page[access.Entry], err error) {
		page, err := s.cfg.Audit.List(ctx, access.AuditFilter{Caller: in.Caller, Since: in.Since, Before: in.Cursor, Limit: in.Limit})
		if errors.Is(err, access.ErrCursor) {
			return out, badField("query.cursor", "%v", err)
		}
		return client.Page[access.Entry]{Data: orEmpty(page.Entries), Next: page.Next}, err
	})
}

// keyProblem converts an error of package access about a field to a problem and returns other errors unchanged.
func keyProblem(err error, prefix string) error {
	field, invalid := errors.AsType[*access.KeyError](err)
	switch {
	case !invalid:
		return err
	case prefix == "path.":
		return badField("path.id", "%s", field.Why)
	case field.Field == "expires":
		return badField("body.expires_at", "%s", field.Why)
	}
	return badField(prefix+field.Field, "%s", field.Why)
}
