package source

import (
	_ "embed"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed public.yaml
var publicYAML []byte

// publicTimeout is short so that a machine without a network fails quickly.
const publicTimeout = 15 * time.Second

// Public returns well-known public lists. They are fetched only on request.
func Public() []Source {
	var list []Source
	if err := yaml.UnmarshalWithOptions(publicYAML, &list, yaml.Strict()); err != nil {
		panic("embedded list of public sources: " + err.Error())
	}
	for i := range list {
		list[i].Timeout = publicTimeout
	}
	return list
}
