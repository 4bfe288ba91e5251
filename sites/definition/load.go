package definition

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	_ "time/tzdata" // for timezone, where the machine has none

	"muster/internal/yamlstrict"
)

// maxFile bounds a definition file.
const maxFile = yamlstrict.MaxSize

//go:embed shipped/*.yaml
var shipped embed.FS

// Shipped returns the definitions that come with the program, by site.
func Shipped() ([]*Definition, error) {
	defs, err := loadDir(shipped, "shipped", "shipped")
	for _, d := range defs {
		d.shipped = true
	}
	return defs, err
}

// ParseShipped is Parse for a definition that comes with the program.
func ParseShipped(file string, data []byte) (*Definition, error) {
	def, err := Parse(file, data)
	if err != nil {
		return nil, err
	}
	def.shipped = true
	return def, nil
}

// Load reads the definition in a file. Its error is a Problems when the file
// can be read but is wrong.
func Load(name string) (*Definition, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open site definition: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read site definition %s: %w", name, err)
	}
	return Parse(name, data)
}

// LoadDir reads every *.yaml and *.yml file of a folder, sorted by site. Two
// definitions of one site are an error; so is every problem of every file.
func LoadDir(dir string) ([]*Definition, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("read site definitions: %w", err)
	}
	return loadDir(os.DirFS(dir), ".", dir)
}

func loadDir(fsys fs.FS, root, shown string) ([]*Definition, error) {
	entries, err := fs.ReadDir(fsys, root)
	if err != nil {
		return nil, fmt.Errorf("read site definitions in %s: %w", shown, err)
	}
	var defs []*Definition
	var errs []error
	for _, e := range entries {
		if ext := path.Ext(e.Name()); e.IsDir() || (ext != ".yaml" && ext != ".yml") {
			continue
		}
		data, err := readFile(fsys, path.Join(root, e.Name()))
		if err != nil {
			errs = append(errs, fmt.Errorf("read site definition: %w", err))
			continue
		}
		def, err := Parse(path.Join(shown, e.Name()), data)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if i := slices.IndexFunc(defs, func(o *Definition) bool { return o.Site == def.Site }); i >= 0 {
			errs = append(errs, &Problem{File: def.file, At: def.At, Key: "site", Text: fmt.Sprintf("%q is defined in %s already; rename one", def.Site, defs[i].file)})
			continue
		}
		defs = append(defs, def)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	slices.SortFunc(defs, func(a, b *Definition) int { return strings.Compare(a.Site, b.Site) })
	return defs, nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse reads a definition from data; file is the name that problems carry.
func Parse(file string, data []byte) (*Definition, error) {
	d := &decoder{file: file, places: map[string]written{}}
	if len(data) > maxFile {
		return nil, Problems{{File: file, At: Pos{1, 1}, Text: "longer than 1 MiB; that is no site definition"}}
	}
	root := d.parse(data)
	if root == nil {
		return nil, d.problems
	}
	def := defaults()
	def.file, def.source = file, slices.Clone(data)
	d.into(root, reflect.ValueOf(def).Elem(), "")
	if d.isMapping(root) {
		d.check(def)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.sorted()
	}
	def.places = d.places
	return def, nil
}
