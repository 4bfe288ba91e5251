package client

import (
	"context"
	"net/http"

	"muster/orchestrator/health"
)

// Health checks the parts of the system: Redis, the workers, the agents, the scrapes and the proxies.
func (c *Client) Health(ctx context.Context) (report health.Report, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/health", nil, nil, &report)
	return report, err
}
