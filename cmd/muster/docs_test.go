package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"muster/internal/testutil"
	"muster/internal/yamlstrict"
	"muster/jobs/pipeline"
	"muster/orchestrator/config"
	"muster/sites/definition"
)

// YAML blocks in the documentation load: site definitions, pipelines, settings, and fields of a definition.
// Files of other programs are skipped.
func TestDocumentedYAMLLoads(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found := testutil.Must(filepath.Glob(pattern))(t)
		pages = append(pages, found...)
	}
	sections := map[string]bool{}
	for _, key := range yamlstrict.KeysOf(reflect.TypeFor[config.Config]()) {
		sections[key] = true
	}
	loaded := map[string]int{}
	for _, page := range pages {
		text := testutil.Must(os.ReadFile(page))(t)
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatchIndex(string(text), -1) {
			block := string(text[m[2]:m[3]])
			where := fmt.Sprintf("%s:%d", page, strings.Count(string(text[:m[2]]), "\n")+1)
			kind, err := loadDocumented(t, sections, block)
			if err != nil {
				t.Errorf("%s: %s: %v", where, kind, err)
			}
			loaded[kind]++
		}
	}
	for _, kind := range []string{"definition", "pipeline", "settings", "fields"} {
		if loaded[kind] == 0 {
			t.Errorf("no page shows a block of kind %s; got %v", kind, loaded)
		}
	}
}

// loadDocumented loads a block as the kind that its keys indicate.
func loadDocumented(t *testing.T, sections map[string]bool, block string) (kind string, err error) {
	t.Helper()
	const secret = "d2hhdC1pcy1pbi10aGUtdmFyaWFibGU="
	block = strings.ReplaceAll(block, "whsec_…", "whsec_"+secret)
	keys := map[string]any{}
	if err := yaml.Unmarshal([]byte(block), &keys); err != nil {
		return "YAML", err
	}
	settings := true
	for key := range keys {
		settings = settings && sections[key]
	}
	switch {
	case keys["site"] != nil:
		if keys["records"] == nil { // it shows the head of a definition
			block += "base_url: http://s.example\nstart: [/]\nrecords: {r: {fields: {f: h1}}}\n"
		}
		_, err := definition.Parse("block", []byte(block))
		return "definition", err
	case keys["stages"] != nil:
		_, err := pipeline.Parse("block", []byte(block))
		return "pipeline", err
	case settings:
		file := filepath.Join(t.TempDir(), "muster.yaml")
		testutil.Ok(t, os.WriteFile(file, []byte(block), 0o600))
		var environ []string // a value for each variable
		for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(block, -1) {
			environ = append(environ, m[1]+"="+secret)
		}
		_, err := config.Load(config.Sources{File: file, Environ: environ})
		return "settings", err
	case keys["apiVersion"] != nil, keys["scrape_configs"] != nil, keys["distributor"] != nil:
		return "other", nil
	}
	const head = "site: s\nbase_url: http://s.example\nstart: [/]\nrecords:\n  r:\n    fields:\n"
	lines := strings.SplitAfter(strings.TrimRight(block, "\n"), "\n")
	_, err = definition.Parse("block", []byte(head+"      "+strings.Join(lines, "      ")+"\n"))
	return "fields", err
}
