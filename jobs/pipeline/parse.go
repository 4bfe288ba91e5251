package pipeline

import (
	"fmt"
	"path/filepath"
	"strings"

	"muster/internal/yamlstrict"
)

// maxFile bounds the file of a pipeline, in bytes.
const maxFile = 64 << 10

// Parse reads a pipeline from YAML and fills in the defaults. The name of the file, without folders and extension, is
// the pipeline's; the key name may repeat it. Parse finds all mistakes at once: its error is a Problems.
func Parse(file string, data []byte) (*Pipeline, error) {
	if len(data) > maxFile {
		return nil, Problems{{File: file, At: firstLine, Text: fmt.Sprintf("longer than the limit of %d KiB", maxFile>>10)}}
	}
	p, name := &Pipeline{}, nameOf(file)
	d := yamlstrict.Decoder{File: file}
	isMapping := d.Decode(data, p)
	c := checker{file: file, places: d.Places, problems: d.Problems}
	if isMapping {
		if p.Name != name && c.isSet("name") {
			c.fail("name", "is %q, but the pipeline has the name of its file, %q; take the key out or rename the file", p.Name, name)
		}
		p.Name = name
		c.check(p)
	}
	if len(c.problems) > 0 {
		return nil, c.problems.Sorted()
	}
	p.setDefaults()
	return p, nil
}

// nameOf is the name of the pipeline in a file.
func nameOf(file string) string {
	name := filepath.Base(file)
	for _, ext := range extensions {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// extensions are the extensions of pipeline files.
var extensions = []string{".yaml", ".yml"}
