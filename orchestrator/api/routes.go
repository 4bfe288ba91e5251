package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hibiken/asynqmon"

	"muster/orchestrator/access"
	"muster/orchestrator/ui"
	"muster/tasks"
)

// routes are the registered routes and their roles.
type routes struct {
	mux *http.ServeMux
	by  map[string]routeInfo // by pattern
}

// routeInfo describes a route for the middleware.
type routeInfo struct {
	roles     []access.Role // allowed roles; none: only admins
	open      bool          // it takes no key
	optional  bool          // it needs no key, and responds with more to a viewer
	operation string        // its id, or the pattern
	frequent  bool          // routine work of agents, omitted from the audit log
	waits     bool          // its requests wait for something to happen
	refuse    refusal       // nil: a problem
}

// refusal rejects a caller who may not use a route.
type refusal func(w http.ResponseWriter, r *http.Request, why string)

func newRoutes() *routes { return &routes{mux: http.NewServeMux(), by: map[string]routeInfo{}} }

// handle adds a route for callers with one of the roles.
func (s *routes) handle(pattern string, h http.Handler, roles ...access.Role) {
	s.mux.Handle(pattern, h)
	s.by[pattern] = routeInfo{roles: roles, operation: pattern}
}

// handlePage adds a page, or a change that pages make.
func (s *routes) handlePage(r ui.Route) {
	s.handle(r.Pattern, r.Handler, r.Roles...)
	info := s.by[r.Pattern]
	info.refuse = r.Refuse
	s.by[r.Pattern] = info
}

// forbid rejects a request because of the caller's role.
func (i routeInfo) forbid(w http.ResponseWriter, r *http.Request, why string) {
	if i.refuse != nil {
		i.refuse(w, r, why)
		return
	}
	writeProblem(w, problem(http.StatusForbidden, "%s", why))
}

// addOperations registers the operations, which are in mux already, and documents their roles.
func (s *routes) addOperations(api huma.API) {
	for path, item := range api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPatch: item.Patch, http.MethodPut: item.Put, http.MethodDelete: item.Delete,
		} {
			if op == nil {
				continue
			}
			r := routeInfo{operation: op.OperationID, open: len(op.Security) == 0}
			r.roles, _ = op.Metadata[roleKey].([]access.Role)
			r.frequent, _ = op.Metadata[frequentKey].(bool)
			r.waits, _ = op.Metadata[waitsKey].(bool)
			r.optional, _ = op.Metadata[optionalKey].(bool)
			s.by[method+" "+path] = r
			if r.open || r.optional {
				continue
			}
			op.Extensions = map[string]any{"x-role": r.roles}
			op.Description = strings.TrimSpace(op.Description + "\n\nNeeds the role " + rolesText(r.roles) + ".")
		}
	}
}

func rolesText(roles []access.Role) string {
	if len(roles) == 0 {
		roles = []access.Role{access.Admin}
	}
	var words []string
	for _, r := range roles {
		words = append(words, string(r))
	}
	return strings.Join(words, " or ")
}

// pattern returns the pattern of the route that serves r, such as "GET /jobs/{id}", or "" if there is none. It
// contains no values of r's path.
func (c Config) pattern(r *http.Request) string {
	_, pattern := c.routes.mux.Handler(r)
	return pattern
}

// routeOf returns the description of the route that serves r.
func (c Config) routeOf(r *http.Request) routeInfo { return c.routes.by[c.pattern(r)] }

// permitted passes requests on if the caller's role allows them. A route without roles is for admins only.
func (c Config) permitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pattern := c.pattern(r)
		if pattern == "" { // routed responds with 404
			next.ServeHTTP(w, r)
			return
		}
		at, caller := c.routes.by[pattern], access.CallerOf(r.Context())
		if !at.open && !at.optional && caller.Role != access.Admin && !slices.ContainsFunc(at.roles, caller.Role.May) {
			at.forbid(w, r, fmt.Sprintf("this takes the role %s; the key %s has the role %s", rolesText(at.roles), caller.Name, caller.Role))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Root is the path of the dashboard.
const Root = "/asynqmon"

// shared lends a client's connection to asynqmon, which closes it only in Close; Close is never called.
type shared struct{ client *tasks.Client }

func (s shared) MakeRedisClient() any { return s.client.Redis() }

var (
	// outside matches the link to fonts on another host. The page works without them, and an unreachable host would
	// delay it.
	outside = regexp.MustCompile(`<link rel="stylesheet" href="https?://[^"]*"\s*/?>`)
	inline  = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

// note is shown above asynqmon's pages: their numbers of tasks are not numbers of nodes.
const note = `<style>#root{position:relative}</style>` +
	`<p style="margin:0;padding:8px 16px;font:14px sans-serif;color:#222;background:#fff3cd">` +
	`<a href="/ui/tasks/">Back to the pages of Muster</a>. These pages show tasks of asynq's own clients. The tasks of workflows are not counted here. ` +
	`For these see <a href="/ui/tasks/workflows">their pages</a>, <code>muster workflows</code>, and the metrics <code>muster_fleet_…</code>. ` +
	`A queue that is paused here is paused for them, too, after at most four seconds.</p>`

var root = []byte(`<div id="root">`)

// queues serves asynqmon under Root: with write to admins, and read-only to all others.
func queues(client *tasks.Client, write bool) http.Handler {
	show := dashboard(client, true)
	if !write {
		return show
	}
	change := dashboard(client, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access.CallerOf(r.Context()).Role == access.Admin {
			change.ServeHTTP(w, r)
			return
		}
		show.ServeHTTP(w, r)
	})
}

// dashboard serves asynqmon under Root. readOnly disables its actions.
func dashboard(client *tasks.Client, readOnly bool) http.Handler {
	mon := asynqmon.New(asynqmon.Options{RootPath: Root, RedisConnOpt: shared{client}, ReadOnly: readOnly})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, Root)
		if strings.HasPrefix(rest, "/api/") || strings.HasPrefix(rest, "/static/") {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			mon.ServeHTTP(w, r)
			return
		}
		// Everything else is the page, or one of its few small files.
		page := &buffer{header: http.Header{}, code: http.StatusOK}
		mon.ServeHTTP(page, r)
		body := page.Bytes()
		if bytes.HasPrefix(bytes.ToLower(body), []byte("<!doctype html>")) {
			body = outside.ReplaceAll(body, nil)
			body = bytes.Replace(body, root, append([]byte(note), root...), 1)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", policy(body))
		} else if ct := page.header.Get("Content-Type"); ct != "" {
			w.Header().Set("Content-Type", ct)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(page.code)
		_, _ = w.Write(body)
	})
}

// policy allows the page its own parts and the scripts that are written into
// it, and nothing else. Its styles are made while it runs.
func policy(page []byte) string {
	scripts := "'self'"
	for _, m := range inline.FindAllSubmatch(page, -1) {
		sum := sha256.Sum256(m[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'self'; script-src " + scripts + "; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
		"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// buffer stores a response so that it can be modified.
type buffer struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (b *buffer) Header() http.Header  { return b.header }
func (b *buffer) WriteHeader(code int) { b.code = code }

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
