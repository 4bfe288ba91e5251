package definition

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	_ "time/tzdata" // for timezone, on machines without time zones

	"muster/internal/catalog"
	"muster/internal/trust"
	"muster/internal/yamlstrict"
)

// maxFile bounds a definition file.
const maxFile = yamlstrict.MaxSize

//go:embed shipped/*.yaml
var shipped embed.FS

// Set has definitions by site.
type Set = catalog.Set[*Definition]

// NewSet returns an empty set.
func NewSet() *Set { return &Set{Kind: "site", Valid: map[string]*Definition{}} }

// Shipped returns the definitions that are part of the program.
func Shipped() (*Set, error) {
	set := NewSet()
	if err := readDir(set, shipped, "shipped", "shipped"); err != nil {
		return nil, err
	}
	for _, b := range set.Broken {
		return nil, b
	}
	for _, d := range set.Valid {
		d.shipped = true
	}
	return set, nil
}

// Load reads a definition file and the defaults in its directory. It returns Problems if the file is readable but invalid.
func Load(name string) (*Definition, error) {
	f, err := trust.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read site definition: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read site definition %s: %w", name, err)
	}
	dir := filepath.Dir(name)
	s, err := readShared(os.DirFS(dir), ".", dir)
	if err != nil {
		return nil, err
	}
	return parseWith(name, data, s)
}

// siteLine matches the site in a file, even if the rest is invalid YAML.
var siteLine = regexp.MustCompile(`(?m)^site:[ \t]*["']?([A-Za-z0-9._-]+)`)

// LoadDir adds every *.yaml and *.yml file of a directory to a set, with the defaults of the directory. Invalid files do not
// cause an error: their sites are broken, and so are all definitions of a site that has more than one.
func LoadDir(set *Set, dir string) error {
	return readDir(set, os.DirFS(dir), ".", dir)
}

func readDir(set *Set, fsys fs.FS, root, shown string) error {
	s, serr := readShared(fsys, root, shown)
	return set.Read(fsys, root, shown, DefaultsFile, maxFile, func(file string, data []byte) (string, *Definition, error) {
		name := strings.TrimSuffix(path.Base(file), path.Ext(file))
		if m := siteLine.FindSubmatch(data); m != nil {
			name = string(m[1])
		}
		if serr != nil {
			return name, nil, serr
		}
		def, err := parseWith(file, data, s)
		if err == nil {
			name = def.Site
		}
		return name, def, err
	})
}

// Parse reads a definition from data or from the result of YAML. Problems name the file.
func Parse(file string, data []byte) (*Definition, error) {
	return parseWith(file, data, nil)
}

// parseWith reads a definition with the defaults of s, which may be nil, or with the defaults in its text.
func parseWith(file string, data []byte, s *shared) (*Definition, error) {
	if own, below := split(data); below != nil {
		data, s = own, below
	}
	def := defaults()
	def.file, def.source = file, s.join(data)
	d := decoder()
	s.decode(d, def)
	d.File = file
	isMapping := d.Decode(data, def)
	def.places = d.Places
	c := &checker{file: file, places: d.Places, problems: d.Problems}
	if isMapping {
		c.check(def)
	}
	if len(c.problems) > 0 {
		return nil, c.problems.Sorted()
	}
	return def, nil
}

// Pos is a position in a definition file. A Problem is one mistake in the file. Problems is an error with all mistakes.
type (
	Pos      = yamlstrict.Pos
	Problem  = yamlstrict.Problem
	Problems = yamlstrict.Problems
)
