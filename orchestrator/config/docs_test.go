package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

var update = flag.Bool("update", false, "write docs/reference/settings.md")

const settingsHead = `# Settings

Made by ` + "`go generate ./orchestrator/config`" + ` from the program and [muster.example.yaml](../../muster.example.yaml), a template that explains all settings in full, with their ranges.
[Install](../how-to/install.md#settings) explains files, environment variables, secrets and reloads.

` + "`workers.concurrency`" + ` is the key ` + "`concurrency`" + ` in the section ` + "`workers`, and `MUSTER_WORKERS__CONCURRENCY`" + ` in the environment. In parentheses are the type or the values, and the default. The variable of a *secret*
with ` + "`_FILE`" + ` reads it from a file, and it may contain references to secrets. ` + "`muster config`" + ` shows which settings need no restart.
`

// docs/reference/settings.md lists all settings with the comments of the example. go generate writes it.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	remarks, _ := testutil.Remarks(t, example)
	var page bytes.Buffer
	page.WriteString(settingsHead)
	c := Default()
	section := ""
	for _, s := range settings(&c) {
		head, _, ok := strings.Cut(s.path, ".")
		if !ok {
			head = "general"
		}
		if head != section {
			section = head
			fmt.Fprintf(&page, "\n## %s\n\n%s", head, strings.TrimLeft(testutil.Item(remarks[head])+"\n\n", "\n"))
		}
		if remarks[s.path] == "" {
			t.Errorf("muster.example.yaml has no comment on %s", s.path)
		}
		remark := remarks[s.path]
		if bounds := strings.Fields(s.tag.Get("range")); len(bounds) == 2 { // the example has them
			remark = strings.Replace(remark, " ("+bounds[0]+" to "+bounds[1]+")", "", 1)
		}
		fmt.Fprintf(&page, "* `%s`%s: %s\n", s.path, s.facts(t), testutil.Item(remark))
	}
	testutil.Page(t, "../../docs/reference/settings.md", page.Bytes(), *update, "go generate ./orchestrator/config")
}

// facts returns the valid values and the default of a setting, as Markdown.
func (s setting) facts(t *testing.T) string {
	t.Helper()
	kind := map[reflect.Type]string{
		reflect.TypeFor[string](): "text", reflect.TypeFor[bool](): "true or false", reflect.TypeFor[int](): "whole number", reflect.TypeFor[float64](): "number",
		reflect.TypeFor[time.Duration](): "duration", reflect.TypeFor[[]string](): "list", reflect.TypeFor[map[string]int](): "numbers by name",
		reflect.TypeFor[map[string]string](): "texts by name", reflect.TypeFor[map[string]time.Duration](): "durations by name",
		reflect.TypeFor[[]Source](): "list of sources", reflect.TypeFor[[]Agent](): "list of agents", reflect.TypeFor[[]Webhook](): "list of endpoints",
	}[s.v.Type()]
	if kind == "" {
		t.Errorf("%s: add a name for the type %s", s.path, s.v.Type())
	}
	var facts []string
	if words := strings.Fields(s.tag.Get("oneof")); len(words) > 0 {
		facts = append(facts, "`"+strings.Join(words, "`, `")+"`")
	} else if zero := s.tag.Get("zero"); zero != "" {
		facts = append(facts, "0 for "+zero)
	} else if s.isList() || s.isMap() {
		facts = append(facts, kind)
	}
	value := testutil.Must(json.Marshal(s.shown()))(t)
	if text := strings.Trim(string(value), `"`); text != "" && !s.isList() && !s.isMap() {
		facts = append(facts, "`"+text+"`")
	}
	if s.secret() {
		facts = append(facts, "*secret*")
	}
	if len(facts) == 0 {
		return ""
	}
	return " (" + strings.Join(facts, "; ") + ")"
}
