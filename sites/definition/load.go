package definition

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	_ "time/tzdata" // for timezone, on machines without time zones

	"muster/internal/trust"
	"muster/internal/yamlstrict"
)

// maxFile bounds a definition file.
const maxFile = yamlstrict.MaxSize

//go:embed shipped/*.yaml
var shipped embed.FS

// Shipped returns the definitions that are part of the program, sorted by site.
func Shipped() ([]*Definition, error) {
	defs, broken, err := loadDir(shipped, "shipped", "shipped")
	for _, b := range broken {
		err = errors.Join(err, b.Err)
	}
	for _, d := range defs {
		d.shipped = true
	}
	return defs, err
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

// BrokenError means that a site cannot be scraped because its definition is unreadable or invalid.
type BrokenError struct {
	Site string // from the file, or the file name without extension
	File string
	Err  error // a Problem, Problems, or the error of reading the file
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("site %s has an invalid definition:\n%v", e.Site, e.Err)
}

func (e *BrokenError) Unwrap() error { return e.Err }

// siteLine matches the site in a file, even if the rest is invalid YAML.
var siteLine = regexp.MustCompile(`(?m)^site:[ \t]*["']?([A-Za-z0-9._-]+)`)

// newBrokenError returns the error of a file; data is its content, or nil.
func newBrokenError(file string, data []byte, err error) *BrokenError {
	name := strings.TrimSuffix(path.Base(file), path.Ext(file))
	if m := siteLine.FindSubmatch(data); m != nil {
		name = string(m[1])
	}
	return &BrokenError{Site: name, File: file, Err: err}
}

// LoadDir reads every *.yaml and *.yml file of a directory, sorted by site, with the defaults of the directory. Invalid files do
// not cause an error: they are returned as wrong, and so are all definitions of a site that has more than one.
func LoadDir(dir string) (defs []*Definition, wrong []*BrokenError, err error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, nil, fmt.Errorf("read site definitions: %w", err)
	}
	return loadDir(os.DirFS(dir), ".", dir)
}

func loadDir(fsys fs.FS, root, shown string) (defs []*Definition, wrong []*BrokenError, err error) {
	entries, err := fs.ReadDir(fsys, root)
	if err != nil {
		return nil, nil, fmt.Errorf("read site definitions in %s: %w", shown, err)
	}
	s, serr := readShared(fsys, root, shown)
	first := map[string]*Definition{} // by site
	for _, e := range entries {
		if ext := path.Ext(e.Name()); e.IsDir() || e.Name() == DefaultsFile || (ext != ".yaml" && ext != ".yml") {
			continue
		}
		file := path.Join(shown, e.Name())
		data, err := trust.ReadFile(fsys, path.Join(root, e.Name()), maxFile+1)
		if err != nil {
			wrong = append(wrong, newBrokenError(file, nil, fmt.Errorf("read site definition: %w", err)))
			continue
		}
		def, err := (*Definition)(nil), serr
		if err == nil {
			def, err = parseWith(file, data, s)
		}
		if err != nil {
			wrong = append(wrong, newBrokenError(file, data, err))
			continue
		}
		if other := first[def.Site]; other != nil {
			wrong = append(wrong, newBrokenError(file, data, def.Problem("site", fmt.Sprintf("%q is already defined in %s; rename one of them", def.Site, other.file))))
			continue
		}
		first[def.Site] = def
		defs = append(defs, def)
	}
	defs = slices.DeleteFunc(defs, func(d *Definition) bool {
		return slices.ContainsFunc(wrong, func(b *BrokenError) bool { return b.Site == d.Site })
	})
	slices.SortFunc(defs, func(a, b *Definition) int { return strings.Compare(a.Site, b.Site) })
	return defs, wrong, nil
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
