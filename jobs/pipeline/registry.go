package pipeline

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"muster/internal/nearest"
	"muster/internal/trust"
)

//go:embed shipped/*.yaml
var shipped embed.FS

// Registry is a set of pipelines, by name. It may be used by many goroutines at once, and changes only by Replace.
type Registry struct{ set atomic.Pointer[set] }

// set is the content of a registry. It does not change once the registry is shared.
type set struct {
	pipelines map[string]*Pipeline
	own       map[string]string // the files of pipelines that are not shipped
	broken    []*BrokenError
}

// BrokenError is the error of a pipeline whose file cannot be read or is invalid.
type BrokenError struct {
	Name string // of the pipeline
	File string
	Err  error // Problems, or why the file cannot be read
}

// Error lists the problems, each on a line with file:line:column.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("pipeline %s cannot be used until its file is put right:\n%v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// UnknownError is the error for the name of a pipeline that does not exist.
type UnknownError struct {
	Name    string
	Nearest string   // a pipeline with a similar name, or ""
	Known   []string // all names, in order
}

// Error suggests the nearest name and lists all.
func (e *UnknownError) Error() string {
	text := fmt.Sprintf("no pipeline %q", e.Name)
	if e.Nearest != "" {
		text += fmt.Sprintf("; did you mean %q?", e.Nearest)
	}
	return fmt.Sprintf("%s (known: %s)", text, strings.Join(e.Known, ", "))
}

// Load returns the shipped pipelines and the pipelines of a directory, which replace shipped ones of the same name.
// The directory has a file NAME.yaml for each; if it is missing or dir is "", Load returns only the shipped ones. A
// file with mistakes is not an error: its pipeline is broken, and the others can be used.
func Load(dir string) (*Registry, error) {
	s := &set{pipelines: map[string]*Pipeline{}, own: map[string]string{}}
	if err := s.read(shipped, "shipped", "shipped"); err != nil {
		return nil, err
	}
	for _, b := range s.broken {
		return nil, b
	}
	clear(s.own)
	if dir != "" {
		if err := s.read(os.DirFS(dir), ".", dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	r := &Registry{}
	r.set.Store(s)
	return r, nil
}

// read adds the pipelines in a folder; shown is the folder in errors.
func (s *set) read(fsys fs.FS, root, shown string) error {
	entries, err := fs.ReadDir(fsys, root)
	if err != nil {
		return fmt.Errorf("read the folder of pipelines %s: %w", shown, err)
	}
	for _, e := range entries {
		if !slices.Contains(extensions, path.Ext(e.Name())) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		file := filepath.Join(shown, e.Name())
		name := nameOf(file)
		if other, ok := s.own[name]; ok {
			s.fail(name, file, Problems{{File: file, At: firstLine, Text: fmt.Sprintf("%s has the pipeline %s already; rename or remove one", other, name)}})
			continue
		}
		s.own[name] = file
		data, err := trust.ReadFile(fsys, path.Join(root, e.Name()), maxFile+1)
		if err != nil {
			s.fail(name, file, unreadable(file, err))
			continue
		}
		p, err := Parse(file, data)
		if err != nil {
			s.fail(name, file, err)
			continue
		}
		s.pipelines[name] = p
	}
	return nil
}

// fail makes a pipeline a broken one. A shipped pipeline of the same name is not used instead.
func (s *set) fail(name, file string, err error) {
	delete(s.pipelines, name)
	s.broken = append(s.broken, &BrokenError{Name: name, File: file, Err: err})
}

func unreadable(file string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the message has the path already
	}
	return Problems{{File: file, Text: "cannot be read: " + err.Error()}}
}

// Replace replaces the pipelines with the pipelines of another registry, atomically: a caller of Get and List sees the old ones or
// the new ones.
func (r *Registry) Replace(by *Registry) { r.set.Store(by.set.Load()) }

// Get returns a pipeline; "" is the default one. The caller may change it. The error is a *BrokenError or an
// *UnknownError.
func (r *Registry) Get(name string) (*Pipeline, error) {
	if name == "" {
		name = Default
	}
	s := r.set.Load()
	if p, ok := s.pipelines[name]; ok {
		return p.Clone(), nil
	}
	for _, b := range s.broken {
		if b.Name == name {
			return nil, b
		}
	}
	known := slices.Sorted(maps.Keys(s.pipelines))
	return nil, &UnknownError{Name: name, Nearest: nearest.Word(name, known), Known: known}
}

// List returns all pipelines that can be used, in the order of their names. The caller may change them.
func (r *Registry) List() []*Pipeline {
	s := r.set.Load()
	list := make([]*Pipeline, 0, len(s.pipelines))
	for _, name := range slices.Sorted(maps.Keys(s.pipelines)) {
		list = append(list, s.pipelines[name].Clone())
	}
	return list
}

// Broken returns the pipelines that cannot be used, in the order of their files. A pipeline with two files may be
// listed more than once.
func (r *Registry) Broken() []*BrokenError { return slices.Clone(r.set.Load().broken) }

// File returns the file of a pipeline, or "" for a shipped or an unknown one.
func (r *Registry) File(name string) string { return r.set.Load().own[name] }

// Clone returns a copy of the pipeline that shares nothing with it.
func (p *Pipeline) Clone() *Pipeline {
	q := *p
	q.Stages, q.Labels, q.Context = slices.Clone(p.Stages), slices.Clone(p.Labels), slices.Clone(p.Context)
	for i := range q.Stages {
		q.Stages[i].States = maps.Clone(q.Stages[i].States)
	}
	return &q
}
