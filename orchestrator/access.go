package orchestrator

import (
	"fmt"
	"sync"

	"muster/orchestrator/access"
	"muster/orchestrator/api"
)

// Guarded returns the access configuration of a listener: API keys, allowed hosts and rate limits. Hosts and static keys
// follow a reload of the settings.
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
	gate, err := access.NewGate(cfg.Keys, s.Keys, tokens)
	if err != nil {
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	s.gates.add(gate)
	if err := gate.SetStatic(s.cfg().API.Keys); err != nil { // a reload may have run before the gate was added
		return api.Config{}, fmt.Errorf("set up the HTTP interface: %w", err)
	}
	return api.Config{
		Client: client, Listen: cfg.Listen, HostsNow: func() []string { return s.cfg().API.Hosts }, Write: !cfg.ReadOnly, Logger: logger,
		Gate: gate, Rate: cfg.Rate, Burst: cfg.Burst, Origins: cfg.CORS,
		Keys: s.Keys, Audit: s.Audit,
	}, nil
}

// gates holds the gates of the listeners of a process. It may be used concurrently.
type gates struct {
	mu  sync.Mutex // guards all
	all []*access.Gate
}

func (g *gates) add(one *access.Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, one)
}

// setKeys sets the static keys of all gates. The keys have been validated by a gate before.
func (g *gates) setKeys(keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		_ = one.SetStatic(keys) // fails for all gates or for none
	}
}
