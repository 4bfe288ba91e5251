package sites

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"muster/sites/all"
	"muster/sites/definition"
	"muster/sites/nearest"
)

// Registry is the sites that there are, by name. It changes only by Replace.
type Registry struct {
	defs atomic.Pointer[map[string]*definition.Definition]
}

// NewRegistry returns a registry of definitions. Of two with one name the
// later counts.
func NewRegistry(defs ...*definition.Definition) *Registry {
	byName := map[string]*definition.Definition{}
	for _, d := range defs {
		byName[d.Site] = d
	}
	r := &Registry{}
	r.defs.Store(&byName)
	return r
}

// Replace puts the sites of another registry in the place of these.
func (r *Registry) Replace(by *Registry) { r.defs.Store(by.defs.Load()) }

// LoadRegistry returns the shipped sites, those in Go, and those of a folder, which win
// over shipped ones of the same name. A folder that is not there is an error
// only when it must be. Dependencies on sites that are not there, or in a
// circle, are errors.
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
	if dir != "" {
		own, err = definition.LoadDir(dir)
		if err != nil && (mustExist || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
	r := NewRegistry(append(shipped, own...)...)
	return r, r.checkDepends()
}

// Names lists the sites in order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(*r.defs.Load())) }

// Definition returns a site, or an error that names the nearest.
func (r *Registry) Definition(name string) (*definition.Definition, error) {
	if d, ok := (*r.defs.Load())[name]; ok {
		return d, nil
	}
	return nil, r.Unknown(name)
}

// UnknownError says that there is no site of a name.
type UnknownError struct {
	Name    string
	Nearest string // a site that it may have meant, or ""
}

// Error says what to do.
func (e *UnknownError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("no site %q; did you mean %q?", e.Name, e.Nearest)
	}
	return fmt.Sprintf("no site %q; see muster sites list", e.Name)
}

// Unknown is the error that there is no site of a name. It is an
// *UnknownError.
func (r *Registry) Unknown(name string) error {
	return &UnknownError{Name: name, Nearest: nearest.Word(name, r.Names())}
}

// Order lists sites so that each stands behind those that it depends on.
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
		if err != nil {
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

func (r *Registry) checkDepends() error {
	_, err := r.Order(r.Names()...)
	return err
}
