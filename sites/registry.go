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

	"muster/internal/nearest"
	"muster/sites/all"
	"muster/sites/definition"
)

// Registry is a set of sites, by name. It may be used by many goroutines, and
// changes only by Replace and Add.
type Registry struct {
	sites atomic.Pointer[siteSet]
	// knownTexts has the hashes of the definitions with references to secrets
	// that were in the registry at any time: their jobs may still be running.
	knownTexts sync.Map
}

// siteSet is the content of a registry. It does not change once the registry is
// shared.
type siteSet struct {
	defs   map[string]*definition.Definition
	broken []*definition.BrokenError
}

// NewRegistry returns a registry of definitions. Of two with one name it has the
// later.
func NewRegistry(defs ...*definition.Definition) *Registry {
	byName := map[string]*definition.Definition{}
	for _, d := range defs {
		byName[d.Site] = d
	}
	r := &Registry{}
	r.set(&siteSet{defs: byName})
	return r
}

// Replace replaces the sites by those of another registry.
func (r *Registry) Replace(by *Registry) { r.set(by.sites.Load()) }

// Add adds definitions until the next Replace. They replace those of the same name.
func (r *Registry) Add(defs ...*definition.Definition) {
	now := r.sites.Load()
	next := &siteSet{defs: maps.Clone(now.defs), broken: now.broken}
	for _, d := range defs {
		next.defs[d.Site] = d
	}
	r.set(next)
}

func (r *Registry) set(s *siteSet) {
	for _, d := range s.defs {
		if d.Refers() {
			r.knownTexts.Store(sha256.Sum256(d.YAML()), true)
		}
	}
	r.sites.Store(s)
}

// withSecrets returns a definition with its secrets. Those are only for definitions
// that this process has read itself: a client that can send tasks must not choose
// where secrets are sent.
func (r *Registry) withSecrets(def *definition.Definition, rebased bool) (*definition.Definition, error) {
	if !def.Refers() {
		return def, nil
	}
	if _, known := r.knownTexts.Load(sha256.Sum256(def.YAML())); !known {
		return nil, fmt.Errorf("site %s: the definition has ${…}, and this worker has not read it itself: put the same file into its folder of definitions", def.Site)
	}
	if rebased {
		return nil, fmt.Errorf("site %s: its secrets are not sent to another base URL: take ${…} out of the definition, or the base URL out of the scrape", def.Site)
	}
	return def.WithSecrets(os.LookupEnv)
}

// MissingSecrets returns an error for each site whose definition refers to a
// secret that is missing: of names, or else of all that are in files of the user.
func (r *Registry) MissingSecrets(getenv func(name string) (string, bool), names ...string) []error {
	if len(names) == 0 {
		names = r.Own()
	}
	var errs []error
	for _, name := range names {
		def, err := r.Definition(name)
		if err != nil {
			continue // a broken one is reported elsewhere
		}
		if _, err := def.WithSecrets(getenv); err != nil {
			errs = append(errs, fmt.Errorf("site %s: %w", name, err))
		}
	}
	return errs
}

// LoadRegistry returns the shipped sites, those in Go, and those of a folder, which
// replace shipped ones of the same name. A missing folder is an error only with
// mustExist. An invalid definition in the folder is not an error: its site is
// broken. So is a site that depends on a site that does not exist, or on itself
// through others.
func LoadRegistry(dir string, mustExist bool) (*Registry, error) {
	shipped, err := definition.Shipped()
	if err != nil {
		return nil, err
	}
	inGo, err := all.Definitions()
	if err != nil {
		return nil, err
	}
	shipped = append(shipped, inGo...)
	var own []*definition.Definition
	var broken []*definition.BrokenError
	if dir != "" {
		own, broken, err = definition.LoadDir(dir)
		if err != nil && (mustExist || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	r := NewRegistry(append(shipped, own...)...)
	r.breakSites(broken)
	r.breakSites(r.wrongDepends())
	return r, nil
}

// breakSites moves sites that cannot be scraped to the broken ones.
func (r *Registry) breakSites(broken []*definition.BrokenError) {
	h := r.sites.Load()
	for _, b := range broken {
		delete(h.defs, b.Site)
	}
	h.broken = append(h.broken, broken...)
}

// wrongDepends returns the sites whose dependencies are invalid.
func (r *Registry) wrongDepends() []*definition.BrokenError {
	var wrong []*definition.BrokenError
	for _, name := range r.Names() {
		d := r.sites.Load().defs[name]
		problem := func(text string) {
			wrong = append(wrong, &definition.BrokenError{Site: name, File: d.File(), Err: d.Problem("depends_on", text)})
		}
		for _, on := range d.DependsOn {
			if _, err := r.Definition(on); errors.As(err, new(*UnknownError)) {
				problem(err.Error())
			}
		}
		if circle := r.circle(name, name, nil); circle != nil {
			problem("sites depend on each other in a circle: " + strings.Join(circle, " → ") + "; take one depends_on out")
		}
	}
	return wrong
}

// circle returns a path of dependencies from a site to another, or nil.
func (r *Registry) circle(from, to string, path []string) []string {
	d := r.sites.Load().defs[from]
	if d == nil || slices.Contains(path, from) {
		return nil
	}
	path = append(slices.Clip(path), from)
	for _, on := range d.DependsOn {
		if on == to {
			return append(path, to)
		}
		if found := r.circle(on, to, path); found != nil {
			return found
		}
	}
	return nil
}

// Broken lists the sites that cannot be scraped, with the errors of their
// definitions. A site may be listed more than once.
func (r *Registry) Broken() []*definition.BrokenError { return r.sites.Load().broken }

// Names lists the sites in order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.sites.Load().defs)) }

// Own lists the sites that are not shipped, or replace shipped ones, in order,
// with broken ones.
func (r *Registry) Own() []string {
	var names []string
	h := r.sites.Load()
	for name, d := range h.defs {
		if !d.IsShipped() {
			names = append(names, name)
		}
	}
	for _, b := range h.broken {
		names = append(names, b.Site)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Definition returns a site. The error is a *definition.BrokenError for a broken
// site, or an *UnknownError.
func (r *Registry) Definition(name string) (*definition.Definition, error) {
	h := r.sites.Load()
	if d, ok := h.defs[name]; ok {
		return d, nil
	}
	for _, b := range h.broken {
		if b.Site == name {
			return nil, b
		}
	}
	return nil, r.Unknown(name)
}

// UnknownError is the error for the name of a site that does not exist.
type UnknownError struct {
	Name    string
	Nearest string // a site with a similar name, or ""
}

// Error suggests the nearest name.
func (e *UnknownError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("no site %q; did you mean %q?", e.Name, e.Nearest)
	}
	return fmt.Sprintf("no site %q; see muster sites list", e.Name)
}

// Unknown returns an *UnknownError for a name.
func (r *Registry) Unknown(name string) error {
	return &UnknownError{Name: name, Nearest: nearest.Word(name, r.Names())}
}

// Order returns sites in an order in which each follows those that it depends
// on. A broken site depends on none.
func (r *Registry) Order(names ...string) ([]string, error) {
	var out, path []string
	var visit func(name string) error
	visit = func(name string) error {
		if slices.Contains(out, name) {
			return nil
		}
		if i := slices.Index(path, name); i >= 0 {
			return fmt.Errorf("sites depend on each other in a circle: %s; take one depends_on out", strings.Join(append(path[i:], name), " → "))
		}
		d, err := r.Definition(name)
		if errors.As(err, new(*definition.BrokenError)) {
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
