package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"muster/orchestrator/access"
	"muster/orchestrator/ui"
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
