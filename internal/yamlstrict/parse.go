// Package yamlstrict parses untrusted YAML: it limits the size of a file and the nesting depth before it builds a syntax tree, whose
// memory grows quadratically with the depth. Parse returns the tree; a Decoder fills Go values from it and finds all problems.
package yamlstrict

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// MaxSize is the maximum size of a file in bytes.
	MaxSize = 1 << 20
	// MaxDepth is the maximum nesting depth of lists and maps.
	MaxDepth = 64
)

// Error is an error in a file. Line and Column are 0 if it concerns the whole file.
type Error struct {
	Line, Column int
	Message      string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Message)
}

// Parse returns the syntax tree of data. Its error is an *Error.
func Parse(data []byte) (*ast.File, error) {
	if len(data) > MaxSize {
		return nil, &Error{Message: fmt.Sprintf("the file has more than %d bytes", MaxSize)}
	}
	tokens := lexer.Tokenize(string(data))
	if err := checkDepth(tokens); err != nil {
		return nil, err
	}
	f, err := parser.Parse(tokens, 0)
	if err == nil {
		return f, nil
	}
	if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
		return nil, errorAt(at.GetToken(), at.GetMessage())
	}
	return nil, &Error{Message: err.Error()}
}

// checkDepth counts open brackets and the dashes of nested lists, "- - -", on one line. Lists on separate lines are indented, so the
// size of the file limits their depth.
func checkDepth(tokens token.Tokens) error {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType:
			dashes++
		}
		if brackets > MaxDepth || dashes > MaxDepth {
			return errorAt(t, fmt.Sprintf("lists and maps are nested more than %d deep", MaxDepth))
		}
	}
	return nil
}

func errorAt(t *token.Token, message string) *Error {
	e := &Error{Message: message}
	if t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	return e
}
