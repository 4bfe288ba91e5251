package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/secret"
	"muster/internal/yamlstrict"
)

// removed has the ways out for settings that earlier versions had.
var removed = map[string]string{
	"dashboard":    "the section dashboard was renamed to api, and the default port is 8000",
	"sites.alerts": "use webhooks for the events site.unhealthy and site.recovered instead, with webhooks.static or muster webhooks create",
}

// decoder returns a decoder of settings from a file with references to secrets, or, if refs is nil, from a variable or flag.
func decoder(file string, byPath map[string]setting, refs *secrets) *yamlstrict.Decoder {
	d := &yamlstrict.Decoder{File: file, Optional: true, Removed: removed, Elsewhere: map[string]string{}}
	for path := range byPath {
		name := path[strings.LastIndex(path, ".")+1:]
		if _, ambiguous := d.Elsewhere[name]; ambiguous {
			path = ""
		}
		d.Elsewhere[name] = path
	}
	var s setting // contains the current value
	d.Custom = func(v any, n ast.Node, key string) bool {
		if at, ok := byPath[key]; ok {
			s = at
			d.Hide = s.secret()
		}
		if !d.IsScalar(n) {
			return false
		}
		if s.path == key && s.isList() {
			d.Fail(n, key, "want a list: [one, two], or one line \"- value\" per element")
			return true
		}
		text, _ := d.Scalar(n, key, "a text")
		switch p := v.(type) {
		case *bool:
			switch strings.ToLower(text) {
			case "true", "yes", "on", "1":
				*p = true
			case "false", "no", "off", "0":
				*p = false
			default:
				return false // Decoder reports it
			}
			return true
		case *string:
			if text == "" && strings.HasSuffix(key, "]") {
				d.Fail(n, key, "must not be empty")
			}
			if refs != nil && s.secret() && !s.keepsReferences() && secret.Refers(text) {
				var err error
				if text, err = refs.expand(text); err != nil {
					d.Fail(n, key, "%v", oneLine(err))
				}
			}
			*p = text
			return true
		case *Source:
			p.URL = text
			return true
		}
		return false
	}
	return d
}
