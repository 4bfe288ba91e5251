// Package all lists the sites that are written in Go, and makes them known.
//
// To add one, make a package beside tableful with a definition and an
// extract.Func, and add it to the list below.
package all

import (
	"muster/sites/all/tableful"
	"muster/sites/definition"
	"muster/sites/extract"
)

// sites are a definition and the code that reads its pages each.
var sites = []struct {
	file    string
	yaml    []byte
	extract extract.Func
}{
	{"tableful.yaml", tableful.Definition, tableful.Extract},
}

var (
	definitions []*definition.Definition
	errBroken   error
)

// A site is known wherever this package is linked in, so that every worker
// reads its pages alike.
func init() {
	for _, s := range sites {
		def, err := definition.ParseShipped(s.file, s.yaml)
		if err != nil {
			errBroken = err
			return
		}
		extract.Register(def.Site, s.extract)
		definitions = append(definitions, def)
	}
}

// Definitions returns the definitions of the sites. Its error is that one of
// them does not load, which the test of this package rules out.
func Definitions() ([]*definition.Definition, error) { return definitions, errBroken }
