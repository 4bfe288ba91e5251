package sites

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"muster/internal/catalog"
	"muster/sites/definition"
)

// A Registry is a set of sites by name. It is safe for concurrent use. Only Replace and Add change it.
type Registry struct {
	sites atomic.Pointer[definition.Set] // its content is immutable
	// knownTexts has the hashes of all definitions with references to secrets that this registry ever had: their jobs may still
	// run.
	knownTexts sync.Map
}

// NewRegistry returns a registry of definitions. If two have the same name, the later one wins.
func NewRegistry(defs ...*definition.Definition) *Registry {
	r := &Registry{}
	r.set(definition.NewSet())
	r.Add(defs...)
	return r
}

// Replace replaces all sites by the sites of another registry.
func (r *Registry) Replace(by *Registry) { r.set(by.sites.Load()) }

// Add adds definitions until the next Replace. They replace definitions of the same name.
func (r *Registry) Add(defs ...*definition.Definition) {
	next := *r.sites.Load()
	next.Valid = maps.Clone(next.Valid)
	for _, d := range defs {
		next.Valid[d.Site] = d
	}
	r.set(&next)
}

func (r *Registry) set(s *definition.Set) {
	for _, d := range s.Valid {
		if d.Refers() {
			r.knownTexts.Store(sha256.Sum256(d.YAML()), true)
		}
	}
	r.sites.Store(s)
}

// withSecrets returns a definition with its secrets. Only definitions that this process read itself get secrets: a client that
// sends tasks must not choose the recipients of secrets.
func (r *Registry) withSecrets(def *definition.Definition, rebased bool) (*definition.Definition, error) {
	if !def.Refers() {
		return def, nil
	}
	if _, known := r.knownTexts.Load(sha256.Sum256(def.YAML())); !known {
		return nil, fmt.Errorf("site %s: this worker has no file with the definition, so it cannot use its secrets; copy the file to the worker's directory of definitions", def.Site)
	}
	if rebased {
		return nil, fmt.Errorf("site %s: secrets are never sent to another base URL; remove ${…} from the definition or the base URL from the scrape", def.Site)
	}
	return def.WithSecrets(os.LookupEnv)
}

// MissingSecrets returns an error for each site that refers to a missing secret. It checks the sites in names, or all sites from
// files if there are none.
func (r *Registry) MissingSecrets(getenv func(name string) (string, bool), names ...string) []error {
	if len(names) == 0 {
		names = r.CustomNames()
	}
	var errs []error
	for _, name := range names {
		def, err := r.Definition(name)
		if err != nil {
			continue // broken sites are reported elsewhere
		}
		if _, err := def.WithSecrets(getenv); err != nil {
			errs = append(errs, fmt.Errorf("site %s: %w", name, err))
		}
	}
	return errs
}

// LoadRegistry returns the shipped sites and the sites of a directory, which replace shipped sites of the same
// name. A missing directory is an error only with mustExist. An invalid definition in the directory is not an error: its site is
// broken. A site is also broken if it depends on an unknown site, or on itself through others.
func LoadRegistry(dir string, mustExist bool) (*Registry, error) {
	set, err := definition.Shipped()
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if err := definition.LoadDir(set, dir); err != nil && (mustExist || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	r := &Registry{}
	r.set(set)
	for range 2 { // an unknown dependency hides a cycle
		wrong := r.wrongDepends()
		for _, name := range slices.Sorted(maps.Keys(wrong)) {
			set.Break(name, set.Valid[name].File(), wrong[name])
		}
	}
	return r, nil
}

// wrongDepends returns the problems of sites with invalid dependencies.
func (r *Registry) wrongDepends() map[string]error {
	wrong := map[string]error{}
	for name, d := range r.sites.Load().Valid {
		for _, on := range d.DependsOn {
			if _, err := r.Definition(on); errors.As(err, new(*UnknownError)) {
				wrong[name] = errors.Join(wrong[name], d.Problem("depends_on", err.Error()))
			}
		}
		_, err := r.Order(name)
		if cycle, ok := errors.AsType[cycleError](err); ok && cycle[0] == name {
			wrong[name] = errors.Join(wrong[name], d.Problem("depends_on", cycle.Error()))
		}
	}
	return wrong
}

// Schedules returns the schedules of the sites in their definitions and in settings, which have precedence and may be off.
func (r *Registry) Schedules(settings map[string]string) map[string]string {
	specs := map[string]string{}
	for name, d := range r.sites.Load().Valid {
		specs[name] = d.Schedule
	}
	maps.Copy(specs, settings)
	maps.DeleteFunc(specs, func(_, spec string) bool { return spec == "" || spec == "off" })
	return specs
}

// Broken returns the sites that cannot be scraped, with the errors of their definitions. A site may occur more than once.
func (r *Registry) Broken() []*catalog.BrokenError { return r.sites.Load().Broken }

// Names returns the names of the sites, sorted.
func (r *Registry) Names() []string { return r.sites.Load().Names() }

// CustomNames returns the sites that are not shipped or that replace shipped ones, sorted, including broken ones.
func (r *Registry) CustomNames() []string {
	var names []string
	h := r.sites.Load()
	for name, d := range h.Valid {
		if !d.IsShipped() {
			names = append(names, name)
		}
	}
	for _, b := range h.Broken {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Definition returns the definition of a site. The error is a *catalog.BrokenError for a broken site, or an *UnknownError.
func (r *Registry) Definition(name string) (*definition.Definition, error) {
	return r.sites.Load().Get(name)
}

// UnknownError means that a site does not exist.
type UnknownError = catalog.UnknownError

// Unknown returns an *UnknownError for a name.
func (r *Registry) Unknown(name string) error { return r.sites.Load().Unknown(name) }

// cycleError is the error of a path of dependencies from a site to itself.
type cycleError []string

func (e cycleError) Error() string {
	return "dependency cycle: " + strings.Join(e, " → ") + "; remove one depends_on"
}

// Order sorts sites so that each follows its dependencies. Broken sites have none.
func (r *Registry) Order(names ...string) ([]string, error) {
	var out, path []string
	var visit func(name string) error
	visit = func(name string) error {
		if slices.Contains(out, name) {
			return nil
		}
		if i := slices.Index(path, name); i >= 0 {
			return cycleError(append(path[i:], name))
		}
		d, err := r.Definition(name)
		if errors.As(err, new(*catalog.BrokenError)) {
			d = &definition.Definition{}
		} else if err != nil {
			return err
		}
		path = append(path, name)
		defer func() { path = path[:len(path)-1] }()
		for _, on := range d.DependsOn {
			if err := visit(on); err != nil {
				return fmt.Errorf("site %s depends on %s: %w", name, on, err)
			}
		}
		out = append(out, name)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}
