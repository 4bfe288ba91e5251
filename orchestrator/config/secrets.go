package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/secret"
)

// secrets resolves the references to secrets while settings are loaded.
type secrets struct {
	env      map[string]string
	files    files // gets the files that were read
	warnings []string
}

func (s *secrets) getenv(name string) (string, bool) {
	value, ok := s.env[name]
	return value, ok
}

// read returns the secret in a file.
func (s *secrets) read(path string) (string, error) {
	s.note(path)
	return secret.Read(path)
}

// expand replaces the references in text.
func (s *secrets) expand(text string) (string, error) {
	for _, path := range secret.Files(text) {
		s.note(path)
	}
	return secret.Expand(text, s.getenv)
}

// note notes that a file is read now.
func (s *secrets) note(path string) {
	if _, known := s.files[path]; known {
		return
	}
	s.files.look(path)
	if secret.Exposed(path) {
		s.warnings = append(s.warnings, fmt.Sprintf("every user of this machine can read the secret file %s; chmod o-r it", path))
	}
}

// expand replaces the references to secrets in the texts of a value. It reports
// whether there were any, and notes an error for each that has no value.
func (r *reader) expand(s setting, node ast.Node) bool {
	found := false
	texts(node, func(n *ast.StringNode) {
		if !secret.Refers(n.Value) {
			return
		}
		found = true
		value, err := r.secrets.expand(n.Value)
		if err != nil {
			r.fail(n.GetToken(), "%s: %w", s.path, oneLine(err))
			return
		}
		n.Value = value
	})
	return found
}

// texts calls each for the texts that are values in a node.
func texts(node ast.Node, each func(*ast.StringNode)) {
	switch n := node.(type) {
	case *ast.StringNode:
		each(n)
	case *ast.LiteralNode:
		each(n.Value)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			texts(v, each)
		}
	case *ast.MappingNode:
		for _, v := range n.Values {
			texts(v.Value, each)
		}
	case *ast.MappingValueNode:
		texts(n.Value, each)
	case *ast.AnchorNode:
		texts(n.Value, each)
	}
}

// oneLine is an error whose messages are on one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// MissingForSources returns an error for each source of proxies that refers to
// variables and files that this process does not have.
func (c Config) MissingForSources(getenv func(string) (string, bool)) []error {
	var errs []error
	for _, s := range c.Proxies.Sources {
		for _, text := range append([]string{s.URL, s.Gateway, s.Auth}, sorted(s.Headers)...) {
			if _, err := secret.Expand(text, getenv); err != nil {
				errs = append(errs, fmt.Errorf("proxies.sources: source %s: %w", s.shown(), oneLine(err)))
			}
		}
	}
	return errs
}

// sorted returns the values of a map, in the order of its keys.
func sorted(m map[string]string) []string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[name])
	}
	return values
}
