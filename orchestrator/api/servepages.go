package api

import (
	"muster/orchestrator/ui"
)

// servePages adds the pages, below /ui/.
func servePages(served *routes, cfg Config) {
	shown := ui.Config{
		Client: cfg.Client, Jobs: cfg.Jobs, Agents: cfg.Agents, Pipelines: cfg.Pipelines, Documents: cfg.Documents, Events: cfg.Events,
		Sites: cfg.Sites, Proxies: cfg.Proxies, Archive: cfg.Archive, Check: cfg.Check,
		Write: cfg.Write, Logger: cfg.Logger,
	}
	for _, r := range ui.Routes(shown) {
		served.handlePage(r)
	}
}
