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

Made by ` + "`go generate ./orchestrator/config`" + ` from the program and [muster.example.yaml](../../muster.example.yaml), a template with all settings.
[Configuration](../how-to/configure.md) explains files, environment variables, secrets and reloads.

` + "`workers.concurrency`" + ` is the key ` + "`concurrency`" + ` in the section ` + "`workers`" + `. Each setting has its type, default and environment variable, and:

* *reload*: a change takes effect while Muster runs; other settings need a restart.
* *secret*: the same variable with ` + "`_FILE`" + ` reads it from a file, and it may contain references to secrets.
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
			fmt.Fprintf(&page, "\n## %s\n%s", head, remarks[head])
		}
		if remarks[s.path] == "" {
			t.Errorf("muster.example.yaml has no comment on %s", s.path)
		}
		remark := remarks[s.path]
		if bounds := strings.Fields(s.tag.Get("range")); len(bounds) == 2 { // the facts have them
			remark = strings.Replace(remark, " ("+bounds[0]+" to "+bounds[1]+")", "", 1)
		}
		fmt.Fprintf(&page, "\n### %s\n\n%s\n%s", s.path, s.facts(t), remark)
	}
	testutil.Page(t, "../../docs/reference/settings.md", page.Bytes(), *update, "go generate ./orchestrator/config")
}

// facts returns a line of Markdown with the type and default of a setting.
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
	if words := strings.Fields(s.tag.Get("oneof")); len(words) > 0 {
		kind = "one of `" + strings.Join(words, "`, `") + "`"
	} else if bounds := strings.Fields(s.tag.Get("range")); len(bounds) == 2 {
		kind += fmt.Sprintf(", %s to %s", bounds[0], bounds[1])
		if zero := s.tag.Get("zero"); zero != "" {
			kind += ", or 0 for " + zero
		}
	}
	value, err := json.Marshal(s.shown())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Trim(string(value), `"`)
	switch {
	case s.v.Kind() == reflect.String && s.v.Len() == 0, s.isList(), s.isMap():
		text = "empty"
	default:
		text = "`" + text + "`"
	}
	line := fmt.Sprintf("%s · default %s · `%s`", kind, text, envName(s.path))
	if s.reloads() {
		line += " · *reload*"
	}
	if s.secret() {
		line += " · *secret*"
	}
	return line
}
