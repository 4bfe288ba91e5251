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

// secrets resolves references to secrets while the settings are loaded.
type secrets struct {
	env      map[string]string
	files    files // records the files that are read
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

// expand replaces the references in a string.
func (s *secrets) expand(text string) (string, error) {
	for _, path := range secret.Files(text) {
		s.note(path)
	}
	return secret.Expand(text, s.getenv)
}

// note records that a file is read.
func (s *secrets) note(path string) {
	if _, known := s.files[path]; known {
		return
	}
	s.files.look(path)
	if secret.Exposed(path) {
		s.warnings = append(s.warnings, fmt.Sprintf("secret file %s is readable by all users; run chmod o-r %[1]s", path))
	}
}

// expand replaces the references to secrets in the strings of a value. It reports whether there were any and records an error
// for each missing secret.
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

// texts calls each for all string values in a node.
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

// oneLine returns err with its messages joined on one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// MissingForSources returns an error for each proxy source that refers to variables or files that this process lacks.
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

// sorted returns the values of a map in the order of its keys.
func sorted(m map[string]string) []string {
	var values []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[name])
	}
	return values
}
