// Package catalog reads the definitions in a folder, where a file with mistakes breaks no other.
package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/nearest"
	"muster/internal/trust"
	"muster/internal/yamlstrict"
)

// BrokenError is the error of a definition whose file cannot be read or is invalid.
type BrokenError struct {
	Kind string // of the definition, as in "site"
	Name string
	File string
	Err  error // the problems, or why the file cannot be read
}

// Error lists the problems, each on a line with file:line:column.
func (e *BrokenError) Error() string {
	return fmt.Sprintf("%s %s has an invalid definition:\n%v", e.Kind, e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *BrokenError) Unwrap() error { return e.Err }

// UnknownError is the error for the name of a definition that does not exist.
type UnknownError struct {
	Kind    string
	Name    string
	Nearest string // a definition with a similar name, or ""
}

// Error suggests the nearest name.
func (e *UnknownError) Error() string {
	if e.Nearest != "" {
		return fmt.Sprintf("no %s %q; did you mean %q?", e.Kind, e.Name, e.Nearest)
	}
	return fmt.Sprintf("no %s %q; see muster %ss list", e.Kind, e.Name, e.Kind)
}

// Set has definitions of a kind by name. Broken may have a name more than once, and none that is valid.
type Set[T any] struct {
	Kind   string
	Valid  map[string]T
	Files  map[string]string // of the last Read, also the files of broken ones
	Broken []*BrokenError
}

// Read adds the definitions in the YAML files of a folder, which replace those in the set; shown is the folder in errors.
// It omits hidden files and those called omit. parse returns the definition in a file and its name, also of an invalid one,
// and gets up to limit+1 bytes.
func (s *Set[T]) Read(fsys fs.FS, root, shown, omit string, limit int64, parse func(file string, data []byte) (string, T, error)) error {
	entries, err := fs.ReadDir(fsys, root)
	if err != nil {
		return fmt.Errorf("read the folder of %ss %s: %w", s.Kind, shown, err)
	}
	s.Files = map[string]string{}
	for _, e := range entries {
		ext := path.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || e.Name() == omit || ext != ".yaml" && ext != ".yml" {
			continue
		}
		file, name := filepath.Join(shown, e.Name()), strings.TrimSuffix(e.Name(), ext)
		var value T
		data, err := trust.ReadFile(fsys, path.Join(root, e.Name()), limit+1)
		if err == nil {
			name, value, err = parse(file, data)
		} else {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // the problem names the file already
			}
			err = yamlstrict.Problems{{File: file, Text: "cannot be read: " + err.Error()}}
		}
		if other, twice := s.Files[name]; twice {
			text := fmt.Sprintf("%s has the %s %s already; rename or remove one", other, s.Kind, name)
			err = yamlstrict.Problems{{File: file, At: yamlstrict.Pos{Line: 1, Col: 1}, Text: text}}
		} else {
			s.Files[name] = file
		}
		if err != nil {
			s.Break(name, file, err)
			continue
		}
		s.Valid[name] = value
	}
	return nil
}

// Break replaces a definition by an error.
func (s *Set[T]) Break(name, file string, err error) {
	delete(s.Valid, name)
	s.Broken = append(s.Broken, &BrokenError{s.Kind, name, file, err})
}

// Names returns the names of the valid definitions, sorted.
func (s *Set[T]) Names() []string { return slices.Sorted(maps.Keys(s.Valid)) }

// Get returns a definition, a *BrokenError or an *UnknownError.
func (s *Set[T]) Get(name string) (value T, err error) {
	value, ok := s.Valid[name]
	if ok {
		return value, nil
	}
	for _, b := range s.Broken {
		if b.Name == name {
			return value, b
		}
	}
	return value, s.Unknown(name)
}

// Unknown returns the *UnknownError for a name.
func (s *Set[T]) Unknown(name string) error {
	return &UnknownError{s.Kind, name, nearest.Word(name, s.Names())}
}
