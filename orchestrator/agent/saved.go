package agent

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Saved is the registration of an agent as a backup has it.
type Saved struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Roles      []string          `json:"roles"`
	Capacity   int               `json:"capacity"`
	URL        string            `json:"url,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Draining   bool              `json:"draining,omitempty"`
	Owner      string            `json:"owner,omitempty"` // who may act for it; empty: any agent
	Registered time.Time         `json:"registered"`
	Secret     string            `json:"secret,omitempty"` // signs what is pushed to it
}

// Saved returns the registrations of agents by name, with or without their secrets. Agents of the configuration, which
// are announced from there, are left out.
func (s *Service) Saved(ctx context.Context, secrets bool) ([]Saved, error) {
	all, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	owners, err := s.rdb.HGetAll(ctx, s.keys.owners()).Result()
	if err != nil {
		return nil, fmt.Errorf("read the owners of agents: %w", err)
	}
	var out []Saved
	for _, a := range all {
		if a.Static || a.damaged {
			continue
		}
		one := Saved{
			ID: a.ID, Name: a.Name, Roles: a.Roles, Capacity: a.Capacity, URL: a.URL, Labels: a.Labels, Draining: a.State == StateDraining,
			Registered: a.Registered, Owner: owners[a.ID],
		}
		if secrets {
			one.Secret = a.secret
		}
		out = append(out, one)
	}
	return out, nil
}

// Restore registers an agent under its id, unless there is one of its name or id. It reports whether it did. The agent
// gives its next sign of life by itself. Without its secret, what is pushed to it is not signed until it registers
// again. The errors are those of Register.
func (s *Service) Restore(ctx context.Context, a Saved) (bool, error) {
	rec, err := staticRecord(Registration{Name: a.Name, Roles: a.Roles, Capacity: a.Capacity, URL: a.URL, Labels: a.Labels, Secret: a.Secret})
	if err != nil {
		return false, err
	}
	if rec.URL != "" && !slices.ContainsFunc(s.policy.Load().allow, func(p prefix) bool { return p.allows(rec.URL) }) {
		return false, fmt.Errorf("agent %q: %w; allow it there, or let it register again", a.Name, ErrNotAllowed)
	}
	if a.ID == "" || len(a.ID) > 200 || !plain(a.ID) {
		return false, bad("id", "%.40q is not the id of an agent", a.ID)
	}
	for key, field := range map[string]string{s.keys.names(): rec.Name, s.keys.agents(): a.ID} {
		if known, err := s.rdb.HExists(ctx, key, field).Result(); known || err != nil {
			return false, err
		}
	}
	if _, err := s.store(ctx, &rec, a.ID, a.Owner, false); err != nil {
		return false, err
	}
	if a.Draining {
		return true, s.Drain(ctx, a.ID, true)
	}
	return true, nil
}
