package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"muster/orchestrator/access"
)

// StoredKey is a key, without its secret.
type StoredKey struct {
	access.Key
	State string `json:"state" enum:"active,expired,revoked,damaged"`
}

type keysOutput struct {
	Body struct {
		Keys []StoredKey `json:"keys" doc:"the oldest first; also those that are revoked or expired"`
	} `nameHint:"KeyList"`
}

type newKeyInput struct {
	Body struct {
		Name    string    `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" maxLength:"60" doc:"for people. Keys of the same name are the same owner of agents." example:"ci"`
		Role    string    `json:"role" enum:"viewer,operator,admin,agent"`
		Expires time.Time `json:"expires,omitempty" doc:"when the key ends. Defaults to never."`
	} `nameHint:"NewKey"`
}

type newKeyOutput struct {
	Location string `header:"Location" doc:"path of the key"`
	Body     struct {
		StoredKey
		Text string `json:"key" doc:"the key itself. It is shown once, and not stored."`
	} `nameHint:"CreatedKey"`
}

// KeyPath is the path of a key.
type KeyPath struct {
	ID string `path:"id" maxLength:"60" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"the id or the name of a key" doc:"id of the key, or its name if one active key has it" example:"5c9d1f6e1f0b"`
}

type keyOutput struct{ Body StoredKey }

// storedKey returns what is shown of a key.
func storedKey(k access.Key) StoredKey { return StoredKey{k, k.State(time.Now())} }

// addKeys adds the stored keys.
func addKeys(s *server) {
	keys := s.cfg.Keys
	op := describe(s, http.MethodGet, "/keys", "listKeys", tagAccess, "List the keys that are stored")
	needs(&op, access.Admin)
	route(s, op, 0, func(ctx context.Context, _ *nothing) (*keysOutput, error) {
		list, err := keys.List(ctx)
		out := &keysOutput{}
		out.Body.Keys = []StoredKey{}
		for _, k := range list {
			out.Body.Keys = append(out.Body.Keys, storedKey(k))
		}
		return out, err
	})
	op = describe(s, http.MethodPost, "/keys", "createKey", tagAccess, "Create a key", http.StatusConflict)
	op.DefaultStatus = http.StatusCreated
	needs(&op, access.Admin)
	route(s, op, maxBody, func(ctx context.Context, in *newKeyInput) (*newKeyOutput, error) {
		k, text, err := keys.Create(ctx, access.NewKey{Name: in.Body.Name, Role: access.Role(in.Body.Role), Expires: in.Body.Expires})
		if err != nil {
			return nil, keyProblem(err, "body.")
		}
		out := &newKeyOutput{Location: "/keys/" + k.ID}
		out.Body.StoredKey, out.Body.Text = storedKey(k), text
		return out, nil
	})
	op = describe(s, http.MethodDelete, "/keys/{id}", "revokeKey", tagAccess, "Revoke a key; it stays listed", http.StatusNotFound)
	needs(&op, access.Admin)
	op.DefaultStatus = http.StatusOK
	route(s, op, 0, func(ctx context.Context, in *KeyPath) (*keyOutput, error) {
		k, err := keys.Revoke(ctx, in.ID)
		if err != nil {
			return nil, keyProblem(err, "path.")
		}
		return &keyOutput{storedKey(k)}, nil
	})
}

// keyProblem returns the problem of an error of the keys.
func keyProblem(err error, prefix string) error {
	field, wrong := errors.AsType[*access.KeyError](err)
	switch {
	case wrong && prefix == "path.":
		return badField("path.id", "%s", field.Why)
	case wrong:
		return badField(prefix+field.Field, "%s", field.Why)
	case errors.Is(err, access.ErrNoKey):
		return problem(http.StatusNotFound, "%v", err)
	case errors.Is(err, access.ErrTooManyKeys), errors.Is(err, access.ErrVolatile):
		return problem(http.StatusConflict, "%v", err)
	}
	return err
}
