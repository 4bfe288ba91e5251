package client

import "muster/orchestrator/health"

// GetHealthReport checks the parts of the system.
var GetHealthReport = Declare[None, health.Report]("GET /v1/health", "getHealthReport", "state", "Check Redis, the workers, the agents, the scrapes and the proxies")
