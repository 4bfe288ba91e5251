package definition

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"muster/internal/trust"
	"muster/internal/yamlstrict"
)

// DefaultsFile is the name of the file with the defaults for all definitions of a directory.
const DefaultsFile = "_defaults.yaml"

// ofOneSite are the keys without defaults, because they define the site.
var ofOneSite = []string{"site", "description", "base_url", "hosts", "schedule", "start", "listing", "detail", "records", "depends_on"}

// shared is the content of a file of defaults.
type shared struct {
	file string
	data []byte
}

// sharedLine separates a definition from its defaults in the joined text, and names the file of the defaults. Above the first key it
// is a comment of the user.
var sharedLine = regexp.MustCompile(`(?m)^[^#%\s-](?s:.*?)^(--- # defaults of ([^\n]+)\n)`)

// join appends the defaults to a definition. split reverses it.
func (s *shared) join(data []byte) []byte {
	if s == nil {
		return slices.Clone(data)
	}
	text := strings.TrimSuffix(string(data), "\n") + "\n--- # defaults of " + s.file + "\n" + string(s.data)
	return []byte(text)
}

// split separates a definition from its defaults, which are nil if there are none.
func split(data []byte) ([]byte, *shared) {
	at := sharedLine.FindSubmatchIndex(data)
	if at == nil {
		return data, nil
	}
	return data[:at[2]], &shared{string(data[at[4]:at[5]]), data[at[1]:]}
}

// readShared reads the defaults of a directory, or nil if there are none.
func readShared(fsys fs.FS, root, shown string) (*shared, error) {
	data, err := trust.ReadFile(fsys, path.Join(root, DefaultsFile), maxFile+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	file := path.Join(shown, DefaultsFile)
	if err != nil {
		return nil, fmt.Errorf("read defaults of definitions: %w", err)
	}
	return &shared{file, data}, nil
}

// decode decodes the defaults, if there are any, into a definition.
func (s *shared) decode(d *yamlstrict.Decoder, def *Definition) {
	if s == nil {
		return
	}
	d.File = s.file
	if !d.Decode(s.data, def) && len(d.Problems) == 0 {
		d.FailAt(Pos{Line: 1, Col: 1}, "", "want a mapping, such as politeness: {delay: 5s}")
	}
	for _, key := range ofOneSite {
		if at, ok := d.Places[key]; ok {
			d.FailAt(at.At, key, "is specific to a site; move it to the file of the site")
		}
	}
}

// LoadDefaults checks the defaults in a directory. It returns Problems if the file is readable but invalid.
func LoadDefaults(fsys fs.FS, dir, shown string) error {
	s, err := readShared(fsys, dir, shown)
	if err == nil && s == nil {
		err = fmt.Errorf("read defaults of definitions: %s: %w", path.Join(shown, DefaultsFile), fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	def, d := defaults(), decoder()
	s.decode(d, def)
	c := &checker{file: s.file, places: d.Places, problems: d.Problems}
	if len(c.problems) == 0 {
		c.checkRequest(def)
		c.checkSession(def, nil)
		c.checkRender(&def.Render)
		c.checkExtractor(&def.Extractor)
		c.checkBounds(def)
	}
	if len(c.problems) > 0 {
		return c.problems.Sorted()
	}
	return nil
}
