package definition

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"muster/internal/yamlstrict"
)

// DefaultsFile is the file in a folder of definitions with defaults of its own for all of them.
const DefaultsFile = "_defaults.yaml"

// ofOneSite are the keys that have no default, because they say what a site is.
var ofOneSite = []string{"site", "description", "base_url", "hosts", "start", "listing", "detail", "records", "depends_on"}

// shared is the text of a file of defaults.
type shared struct {
	file string
	data []byte
}

// sharedLine separates a definition from the defaults below it in the text of both; it names the file of these.
var sharedLine = regexp.MustCompile(`(?m)^--- # defaults of (.+)\n`)

// join returns the text of a definition and its defaults, which split takes apart.
func (s *shared) join(data []byte) []byte {
	if s == nil {
		return slices.Clone(data)
	}
	text := strings.TrimSuffix(string(data), "\n") + "\n--- # defaults of " + s.file + "\n" + string(s.data)
	return []byte(text)
}

// split takes the text of a definition from its defaults, or nil.
func split(data []byte) ([]byte, *shared) {
	at := sharedLine.FindSubmatchIndex(data)
	if at == nil {
		return data, nil
	}
	return data[:at[0]], &shared{string(data[at[2]:at[3]]), data[at[1]:]}
}

// readShared reads the defaults in a folder; nil if it has none.
func readShared(fsys fs.FS, root, shown string) (*shared, error) {
	data, err := readFile(fsys, path.Join(root, DefaultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	file := path.Join(shown, DefaultsFile)
	if err != nil {
		return nil, fmt.Errorf("read defaults of definitions: %w", err)
	}
	if len(data) > maxFile {
		return nil, Problems{{File: file, At: Pos{Line: 1, Col: 1}, Text: "longer than 1 MiB; that is no file of defaults"}}
	}
	return &shared{file, data}, nil
}

// decode decodes defaults into a definition, and returns their places.
func (s *shared) decode(def *Definition) (map[string]yamlstrict.Place, Problems) {
	if s == nil {
		return nil, nil
	}
	d := decoder()
	isMapping := d.Decode(s.data, def)
	problems := problemsOf(s.file, d.Problems)
	if !isMapping && len(problems) == 0 {
		problems = append(problems, &Problem{File: s.file, At: Pos{Line: 1, Col: 1}, Text: "want a mapping, such as politeness: {delay: 5s}"})
	}
	for _, key := range ofOneSite {
		if at, ok := d.Places[key]; ok {
			problems = append(problems, &Problem{File: s.file, At: at.At, Key: key, Text: "belongs to one site; write it in the site's own file"})
		}
	}
	return d.Places, problems
}

// mergePlaces adds to the places in a definition those in its defaults that it does not replace, and returns which
// these are. Lists, headers and cookies are replaced as a whole.
func mergePlaces(own, defaults map[string]yamlstrict.Place) map[string]bool {
	added := map[string]bool{}
	for key := range defaults {
		if _, ok := own[key]; !ok && key != "" && !replaced(key, own) {
			added[key] = true
		}
	}
	for key := range added {
		own[key] = defaults[key]
	}
	return added
}

// replaced reports whether a key is in a list, or in headers or cookies, that a definition has itself.
func replaced(key string, own map[string]yamlstrict.Place) bool {
	for i, r := range key {
		if at := key[:i]; r == '[' || r == '.' && (at == "headers" || at == "cookies") {
			if _, ok := own[at]; ok {
				return true
			}
		}
	}
	return false
}

// LoadDefaults checks the defaults in a file. Its error is a Problems if the file can be read but is invalid.
func LoadDefaults(fsys fs.FS, dir, shown string) error {
	s, err := readShared(fsys, dir, shown)
	if err == nil && s == nil {
		err = fmt.Errorf("read defaults of definitions: %s: %w", path.Join(shown, DefaultsFile), fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	def := defaults()
	places, problems := s.decode(def)
	if len(problems) == 0 {
		c := &checker{file: s.file, places: places}
		c.checkRequest(def)
		c.checkSession(def, nil)
		c.checkRender(&def.Render)
		c.checkBounds(def)
		problems = c.problems
	}
	if len(problems) > 0 {
		return problems.Sorted()
	}
	return nil
}
