package orchestrator

import (
	"fmt"
	"log/slog"

	"muster/orchestrator/access"
	"muster/orchestrator/api"
	"muster/orchestrator/config"
	"muster/tasks"
)

// Guarded returns the part of the configuration of a listener that says who may use it, by
// the settings and by the keys that are stored.
func Guarded(cfg config.API, client *tasks.Client, logger *slog.Logger) (api.Config, error) {
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
	return api.Config{
		Client: client, Listen: cfg.Listen, Hosts: cfg.Hosts, Write: !cfg.ReadOnly, Logger: logger,
		Gate: gate, Rate: cfg.Rate, Burst: cfg.Burst, Origins: cfg.CORS,
		Keys: keys, Audit: access.NewAudit(client.Redis(), cfg.AuditKeep),
	}, nil
}
