package pipeline

import (
	"bytes"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

var update = flag.Bool("update", false, "write docs/reference/pipeline-definition.md")

const keysHead = `# Keys of a pipeline definition

Made by ` + "`go generate ./jobs/pipeline`" + ` from the program and
[default.yaml](../../jobs/pipeline/shipped/default.yaml), the pipeline of jobs that name none. It has all keys.
[Jobs](../how-to/jobs.md#pipelines) is the guide.

In parentheses are the type and the valid values of a key. Durations are ` + "`1.5s`, `2m`" + ` or a bare number of seconds.
`

// docs/reference/pipeline-definition.md documents every key with the comment of the shipped pipeline. go generate
// writes it.
func TestKeysPage(t *testing.T) {
	t.Parallel()
	remarks, used := testutil.Remarks(t, "shipped/default.yaml")
	known := map[string]bool{}
	var page bytes.Buffer
	page.WriteString(keysHead)
	for _, s := range []struct {
		name string
		typ  reflect.Type
	}{{"pipeline", reflect.TypeFor[Pipeline]()}, {"stages", reflect.TypeFor[Stage]()}} {
		fmt.Fprintf(&page, "\n## %s\n\n", s.name)
		for f := range s.typ.Fields() {
			path := strings.TrimPrefix(s.name+"."+f.Tag.Get("yaml"), "pipeline.")
			known[path] = true
			if remarks[path] == "" {
				t.Errorf("default.yaml does not document %s", path)
			}
			fmt.Fprintf(&page, "* `%s` (%s): %s\n", path, facts(t, path, f), testutil.Item(remarks[path]))
		}
	}
	for path := range remarks {
		if !known[path] && !used[path] {
			t.Errorf("default.yaml documents the unknown key %s", path)
		}
	}
	testutil.Page(t, "../../docs/reference/pipeline-definition.md", page.Bytes(), *update, "go generate ./jobs/pipeline")
}

// facts returns the properties of a key, as Markdown.
func facts(t *testing.T, path string, f reflect.StructField) string {
	t.Helper()
	kind := map[reflect.Type]string{
		reflect.TypeFor[string](): "text", reflect.TypeFor[bool](): "true or false", reflect.TypeFor[*int](): "whole number", reflect.TypeFor[time.Duration](): "duration",
		reflect.TypeFor[[]string](): "list: text", reflect.TypeFor[map[string]string](): "texts by name", reflect.TypeFor[[]Stage](): "list: the keys below",
	}[f.Type]
	if kind == "" {
		t.Errorf("%s: a name for the type %s is missing", path, f.Type)
	}
	switch path {
	case "labels":
		kind += fmt.Sprintf(", at most %d", maxLabels)
	case "context":
		kind += fmt.Sprintf(", at most %d", maxContext)
	case "stages":
		kind += fmt.Sprintf(", at most %d", maxStages)
	case "stages.states":
		kind += fmt.Sprintf(", at most %d; each `%s` or `%s`", maxStates, Integrated, Rejected)
	case "stages.takes":
		kind = fmt.Sprintf("one of `%s`, `%s`", TakesJob, TakesItem)
	case "stages.max_retries":
		kind += fmt.Sprintf(", 0 to %d", maxRetries)
	case "description":
		kind += fmt.Sprintf(", at most %d characters", maxDescription)
	}
	if f.Type == reflect.TypeFor[time.Duration]() {
		kind += fmt.Sprintf(", %s to %dh", minTime, maxTime/time.Hour)
	}
	if slices.Contains(requiredKeys(), path) {
		kind += "; required"
	}
	return kind
}

// requiredKeys are the keys that the program misses.
func requiredKeys() []string {
	var required []string
	for _, text := range []string{"description: d", "stages: [{role: r}]"} {
		_, err := Parse("p.yaml", []byte(text))
		problems, _ := err.(Problems)
		for _, p := range problems {
			if strings.Contains(p.Text, "is missing") {
				required = append(required, strings.ReplaceAll(p.Key, "[0]", ""))
			}
		}
	}
	return required
}
