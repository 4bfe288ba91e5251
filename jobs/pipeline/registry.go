package pipeline

import (
	"embed"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync/atomic"

	"muster/internal/catalog"
)

//go:embed shipped/*.yaml
var shipped embed.FS

// Registry is a set of pipelines, by name. It may be used by many goroutines at once, and changes only by Replace.
type Registry struct {
	set atomic.Pointer[catalog.Set[*Pipeline]]
}

// Load returns the shipped pipelines and the pipelines of a directory, which replace shipped ones of the same name.
// The directory has a file NAME.yaml for each; if it is missing or dir is "", Load returns only the shipped ones. A
// file with mistakes is not an error: its pipeline is broken, and the others can be used. A shipped pipeline of the same
// name is not used instead.
func Load(dir string) (*Registry, error) {
	s := &catalog.Set[*Pipeline]{Kind: "pipeline", Valid: map[string]*Pipeline{}}
	parse := func(file string, data []byte) (string, *Pipeline, error) {
		p, err := Parse(file, data)
		return nameOf(file), p, err
	}
	if err := s.Read(shipped, "shipped", "shipped", "", maxFile, parse); err != nil {
		return nil, err
	}
	for _, b := range s.Broken {
		return nil, b
	}
	clear(s.Files)
	if dir != "" {
		if err := s.Read(os.DirFS(dir), ".", dir, "", maxFile, parse); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	r := &Registry{}
	r.set.Store(s)
	return r, nil
}

// Replace replaces the pipelines with the pipelines of another registry, atomically: a caller of Get and List sees the old ones or
// the new ones.
func (r *Registry) Replace(by *Registry) { r.set.Store(by.set.Load()) }

// Get returns a pipeline; "" is the default one. The caller may change it. The error is a *catalog.BrokenError or a
// *catalog.UnknownError.
func (r *Registry) Get(name string) (*Pipeline, error) {
	if name == "" {
		name = Default
	}
	p, err := r.set.Load().Get(name)
	if err != nil {
		return nil, err
	}
	return p.Clone(), nil
}

// List returns all pipelines that can be used, in the order of their names. The caller may change them.
func (r *Registry) List() []*Pipeline {
	s := r.set.Load()
	list := make([]*Pipeline, 0, len(s.Valid))
	for _, name := range s.Names() {
		list = append(list, s.Valid[name].Clone())
	}
	return list
}

// Broken returns the pipelines that cannot be used, in the order of their files. A pipeline with two files may be
// listed more than once.
func (r *Registry) Broken() []*catalog.BrokenError { return slices.Clone(r.set.Load().Broken) }

// File returns the file of a pipeline, or "" for a shipped or an unknown one.
func (r *Registry) File(name string) string { return r.set.Load().Files[name] }

// Clone returns a copy of the pipeline that shares nothing with it.
func (p *Pipeline) Clone() *Pipeline {
	q := *p
	q.Stages, q.Labels, q.Context = slices.Clone(p.Stages), slices.Clone(p.Labels), slices.Clone(p.Context)
	for i := range q.Stages {
		q.Stages[i].States = maps.Clone(q.Stages[i].States)
	}
	return &q
}
