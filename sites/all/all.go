// Package all registers the sites that are implemented in Go.
//
// To add one, create a package next to tableful with a definition and an extract.Func, and add it to the list below.
package all

import (
	"muster/sites/all/tableful"
	"muster/sites/definition"
	"muster/sites/extract"
)

// sites are the definitions and extract functions of the sites.
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

// init registers the sites in every program that imports this package, so that all workers use the same code.
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

// Definitions returns the definitions of the sites. It fails if one of them is invalid, which a test rules out.
func Definitions() ([]*definition.Definition, error) { return definitions, errBroken }
