package definition

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"muster/internal/yamlstrict"
)

// Every key that the loader understands is in the README and in the example,
// and the README names no other.
func TestKeysAreDocumented(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for prefix, typ := range map[string]reflect.Type{
		"": reflect.TypeFor[Definition](), "scope.": reflect.TypeFor[Scope](), "start.": reflect.TypeFor[Start](), "listing.": reflect.TypeFor[Listing](), "detail.": reflect.TypeFor[Detail](),
		"next.": reflect.TypeFor[Next](), "links.": reflect.TypeFor[Link](), "records.": reflect.TypeFor[Record](), "field.": reflect.TypeFor[Field](), "source.": reflect.TypeFor[Source](), "replace.": reflect.TypeFor[Swap](),
		"politeness.": reflect.TypeFor[Politeness](), "limits.": reflect.TypeFor[Limits](), "retries.": reflect.TypeFor[Retries](), "blocks.": reflect.TypeFor[Blocks](), "proxy.": reflect.TypeFor[Proxy](), "render.": reflect.TypeFor[Render](),
		"session.": reflect.TypeFor[Session](), "profiles.": reflect.TypeFor[Profile](), "login.": reflect.TypeFor[Login](),
	} {
		for _, key := range yamlstrict.KeysOf(typ) {
			known[prefix+key] = true
			if !strings.Contains(string(example), key+":") {
				t.Errorf("example.yaml: got no key %s%s, want it", prefix, key)
			}
		}
	}
	sections := map[string]bool{"scope": true, "listing": true, "detail": true, "records": true, "politeness": true, "limits": true, "retries": true, "blocks": true, "proxy": true, "render": true, "session": true}
	_, table, _ := strings.Cut(string(readme), "| key | default | |")
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(first, -1) {
			listed[m[1]] = true
			if !known[m[1]] {
				t.Errorf("README.md: got the key %s, want only keys that exist", m[1])
			}
		}
	}
	for key := range known {
		if !listed[key] && !sections[key] {
			t.Errorf("README.md: got no key %s, want it", key)
		}
	}
}

// The definitions in the README load.
func TestReadmeExamplesLoad(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no YAML in README.md")
	}
	for _, b := range blocks {
		if _, err := Parse("README.md", b[1]); err != nil {
			t.Errorf("%v", err)
		}
	}
	// The ways to the next page are written as they must be.
	for _, m := range regexp.MustCompile("`(next: [^`]+)`").FindAllSubmatch(readme, -1) {
		text := "site: s\nbase_url: http://s.example\nstart: [/]\nlisting:\n  format: json\n  " + string(m[1]) + "\nrecords: {r: {from: listing, each_json: a, fields: {t: {json: b}}}}\n"
		if _, err := Parse("README.md", []byte(text)); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
}
