package api

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"muster/orchestrator/access"
)

// server has the operations of the interface.
type server struct {
	cfg     Config
	api     huma.API
	started time.Time
	streams *shares // open streams of events
	leases  *shares // open calls for leases of tasks
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// operations adds the operations of the services in cfg.
func operations(served *routes, cfg Config) {
	s := &server{cfg: cfg, api: newHuma(served.mux), started: time.Now(), streams: newShares("streams of events", maxStreams, maxStreamsEach), leases: newShares("calls for leases", maxLeases, maxLeasesEach)}
	addState(s)
	addWorkflows(s)
	if cfg.Jobs != nil {
		addJobs(s)
		addJobCommands(s)
		addCreate(s)
		addItems(s)
		addNumbers(s)
		addCompare(s)
		addReports(s)
		if cfg.Documents != nil {
			addDocuments(s)
		}
	}
	if cfg.Events != nil {
		addEvents(s, cfg.Events.Read)
	}
	if cfg.Pipelines != nil {
		addPipelines(s)
	}
	if cfg.Agents != nil {
		addAgents(s)
		addAssignments(s)
	}
	if cfg.Webhooks != nil {
		addWebhooks(s)
	}
	if cfg.Archive != nil {
		addArchive(s)
	}
	if cfg.Sites != nil {
		addSites(s)
		addScrapes(s)
	}
	if cfg.Keys != nil {
		addKeys(s)
	}
	if cfg.Proxies != nil {
		addProxies(s)
	}
	if cfg.Queue != nil {
		addQueues(s)
	}
	if cfg.Breakers != nil {
		addBreakers(s)
	}
	served.addOperations(s.api)
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's; Problem replaces it
	delete(schemas, "ErrorDetail")
	spec := sync.OnceValue(s.description) // most servers are never asked
	served.handle("GET /openapi.json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
		_, _ = w.Write(spec())
	}), access.Viewer)
}

// untilShutdown returns a context that is done with ctx, and when the server
// shuts down.
func (s *server) untilShutdown(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.cfg.closing, cancel)
	return ctx, func() { stop(); cancel() }
}
