package orchestrator

import (
	"fmt"
	"sync"

	"muster/orchestrator/access"
	"muster/orchestrator/api"
)

// Guarded returns the part of the configuration of a listener that says who may use it, by
// the settings and by the keys that are stored. Its keys and hosts are those of the
// settings in force.
func Guarded(s *System) (api.Config, error) {
	cfg, client, logger := s.cfg().API, s.Client, s.logger
	var tokens *access.Tokens
	if j := cfg.JWT; j.Enabled() {
		var err error
		if tokens, err = access.NewTokens(access.TokensConfig{
			JWKS: j.JWKS, Issuer: j.Issuer, Audience: j.Audience, RoleClaim: j.RoleClaim, Leeway: j.Leeway, Logger: logger,
		}); err != nil {
			return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
		}
	}
	keys := access.NewKeys(client.Redis())
	gate, err := access.NewGate(cfg.Keys, keys, tokens)
	if err != nil {
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	s.gates.add(gate)
	if err := gate.SetStatic(s.cfg().API.Keys); err != nil { // those of a reload that was quicker
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	return api.Config{
		Client: client, Listen: cfg.Listen, HostsNow: func() []string { return s.cfg().API.Hosts }, Write: !cfg.ReadOnly, Logger: logger,
		Gate: gate, Rate: cfg.Rate, Burst: cfg.Burst, Origins: cfg.CORS,
		Keys: keys, Audit: access.NewAudit(client.Redis(), cfg.AuditKeep),
	}, nil
}

// gates are those of the listeners of a process. It may be used concurrently.
type gates struct {
	mu  sync.Mutex // guards all
	all []*access.Gate
}

func (g *gates) add(one *access.Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, one)
}

// setKeys gives keys of the settings, which a gate has taken already, to all gates.
func (g *gates) setKeys(keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		_ = one.SetStatic(keys) // fails for all gates or for none
	}
}
