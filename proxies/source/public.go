package source

import (
	_ "embed"
	"time"

	"github.com/goccy/go-yaml"
)

//go:embed public.yaml
var publicYAML []byte

// publicTimeout is short, so that a machine without a network fails soon.
const publicTimeout = 15 * time.Second

// Public are well-known lists that anybody may read. They are read only when asked for.
func Public() []Source {
	var list []Source
	if err := yaml.UnmarshalWithOptions(publicYAML, &list, yaml.Strict()); err != nil {
		panic("the shipped list of public sources: " + err.Error())
	}
	for i := range list {
		list[i].Timeout = publicTimeout
	}
	return list
}
