package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

type newKeyOutput struct {
	Location string `header:"Location" doc:"path of the key"`
	Body     client.CreatedKey
}

// KeyPath is the path of a key.
type KeyPath struct {
	ID string `path:"id" maxLength:"60" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"the id or the name of a key" doc:"id of the key, or its name if one active key has it" example:"5c9d1f6e1f0b"`
}

func storedKey(k access.Key) client.Key { return client.Key{Key: k, State: k.State(time.Now())} }

// addKeys adds the operations on stored keys.
func addKeys(s *server) {
	keys := s.cfg.Keys
	op := describe(s, http.MethodGet, "/v1/caller", "getCaller", tagAccess, "Get the caller that a request comes from")
	needs(&op, access.Viewer, access.Agent)
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (client.Caller, error) {
		c := access.CallerOf(ctx)
		return client.Caller{Name: c.Name, ID: c.ID, Role: c.Role}, nil
	}))
	op = describe(s, http.MethodGet, "/v1/keys", "listKeys", tagAccess, "List the stored keys, the oldest first")
	op.Description = "The list includes revoked and expired keys."
	needs(&op, access.Admin)
	route(s, op, 0, body(func(ctx context.Context, _ *nothing) (client.Page[client.Key], error) {
		list, err := keys.List(ctx)
		out := client.Page[client.Key]{Data: []client.Key{}}
		for _, k := range list {
			out.Data = append(out.Data, storedKey(k))
		}
		return out, err
	}))
	op = describe(s, http.MethodPost, "/v1/keys", "createKey", tagAccess, "Create a key", http.StatusConflict)
	op.DefaultStatus = http.StatusCreated
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *request[client.NewKey]) (*newKeyOutput, error) {
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
	op = describe(s, http.MethodDelete, "/v1/keys/{id}", "revokeKey", tagAccess, "Revoke a key", http.StatusNotFound)
	op.Description = "The key stays in the list. Within two seconds no process accepts it."
	needs(&op, access.Admin)
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, body(func(ctx context.Context, in *KeyPath) (out client.Key, err error) {
		k, err := keys.Revoke(ctx, in.ID)
		if err != nil {
			return out, keyProblem(err, "path.")
		}
		return storedKey(k), nil
	}))
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
