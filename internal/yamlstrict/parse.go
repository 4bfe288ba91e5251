// Package yamlstrict parses untrusted YAML: it limits the size of a file and the nesting depth before it builds a syntax tree, whose
// memory grows quadratically with the depth. A Decoder fills Go values from the tree and finds all problems.
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

// parse returns the syntax tree of data.
func parse(data []byte) (*ast.File, *Problem) {
	if len(data) > MaxSize {
		return nil, &Problem{At: Pos{1, 1}, Text: fmt.Sprintf("the file has more than %d bytes", MaxSize)}
	}
	tokens := lexer.Tokenize(string(data))
	if p := checkDepth(tokens); p != nil {
		return nil, p
	}
	f, err := parser.Parse(tokens, 0)
	if err == nil {
		return f, nil
	}
	if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
		return nil, problemAt(at.GetToken(), at.GetMessage())
	}
	return nil, &Problem{At: Pos{1, 1}, Text: err.Error()}
}

// checkDepth counts open brackets and the dashes of nested lists, "- - -", on one line. Lists on separate lines are indented, so the
// size of the file limits their depth.
func checkDepth(tokens token.Tokens) *Problem {
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
			return problemAt(t, fmt.Sprintf("lists and maps are nested more than %d deep", MaxDepth))
		}
	}
	return nil
}

func problemAt(t *token.Token, text string) *Problem {
	p := &Problem{At: Pos{1, 1}, Text: text}
	if t.Position != nil {
		p.At = Pos{t.Position.Line, t.Position.Column}
	}
	return p
}
