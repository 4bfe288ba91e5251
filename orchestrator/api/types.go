package api

import (
	"context"

	"muster/orchestrator/ui"
	"muster/proxies"
)

// Proxies is the pool of proxies.
type Proxies interface {
	ui.Proxies
	ListAt(ctx context.Context, site string, f proxies.Filter) ([]proxies.Member, error)
	Remove(ctx context.Context, ids ...string) (removed int, err error)
}
