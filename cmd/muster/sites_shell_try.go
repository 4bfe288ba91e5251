package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/internal/clip"
	"muster/sites/definition"
	"muster/sites/sample"
)

// shellHelp lists the commands of the shell.
const shellHelp = `h3 a, //h3/a     a selector; on a page that is JSON, a path such as items[*].name
{css: h3, …}     a field, as in a definition
:each SELECTOR   search the selectors and fields below inside each match, like each of a record
:each            search them in the whole page again
:html SELECTOR   the HTML of the matches
:open URL        fetch another page; relative to this one
:page            what the page is
:keep NAME       keep the last selector or field under a name
:yaml            the kept fields, as records of a definition
:run             read the page by the definition of --site, which is read again
:quit            end; so does the end of the input
`

// maxShown is how many values are printed, and maxWidth how much of each.
const (
	maxShown = 10
	maxWidth = 160
)

// try tries a line.
func (s *siteShell) try(ctx context.Context, line string) error {
	name, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case line == "":
		return nil
	case !strings.HasPrefix(line, ":"):
		return s.tryOn(line)
	case name == ":help":
		_, err := fmt.Fprint(s.env.stdout, shellHelp)
		return err
	case name == ":each":
		return s.setEach(rest)
	case name == ":html":
		return s.html(rest)
	case name == ":open":
		u, err := s.doc.Page.URL.Parse(rest)
		if err != nil || rest == "" {
			return errors.New(":open needs a URL, such as :open /page/2")
		}
		return s.open(ctx, u)
	case name == ":page":
		s.about()
	case name == ":keep":
		return s.keep(rest)
	case name == ":yaml":
		return s.yaml()
	case name == ":run":
		return s.run()
	default:
		return fmt.Errorf("no command %s; :help lists them", name)
	}
	return nil
}

// tryOn tries a selector or a field.
func (s *siteShell) tryOn(line string) error {
	if !strings.HasPrefix(line, "{") {
		m, err := sample.Match(s.doc, s.each, line)
		if err != nil {
			return err
		}
		s.last = line
		fmt.Fprintf(s.env.stdout, "%s", matches(len(m.Found)))
		if s.each != "" {
			fmt.Fprintf(s.env.stdout, " in %d of %d", m.With, m.Places)
		}
		fmt.Fprintln(s.env.stdout)
		s.show(m.Found)
		return nil
	}
	f, err := definition.ParseField(s.def, line, s.def.Page(s.doc.Page.Kind).Format)
	if err != nil {
		return err
	}
	t, err := sample.Try(s.def, s.doc, s.each, f)
	if err != nil {
		return err
	}
	s.last = line
	n, of := t.Found()
	fmt.Fprintf(s.env.stdout, "found in %d of %d", n, of)
	if n > 0 {
		fmt.Fprintf(s.env.stdout, ", by %s", alternatives(t.Hits))
	}
	fmt.Fprintln(s.env.stdout)
	for _, p := range t.Problems {
		fmt.Fprintf(s.env.stdout, "  problem: %s\n", clip.Line(p, maxWidth))
	}
	values := make([]string, len(t.Values))
	for i, v := range t.Values {
		values[i] = string(v)
	}
	s.show(values)
	return nil
}

// matches counts matches.
func matches(n int) string {
	if n == 1 {
		return "1 match"
	}
	return fmt.Sprintf("%d matches", n)
}

// show prints the first of a list of values.
func (s *siteShell) show(values []string) {
	for i, v := range values {
		if i == maxShown {
			fmt.Fprintf(s.env.stdout, "  … and %d more\n", len(values)-i)
			return
		}
		fmt.Fprintf(s.env.stdout, "  %s\n", clip.Line(v, maxWidth))
	}
}

func (s *siteShell) setEach(selector string) error {
	if selector == "" {
		s.each = ""
		return nil
	}
	m, err := sample.Match(s.doc, selector, selector)
	if err != nil {
		return err
	}
	s.each = selector
	fmt.Fprintf(s.env.stdout, "in each of %s\n", matches(m.Places))
	return nil
}

// html prints the HTML of the elements that a selector matches.
func (s *siteShell) html(selector string) error {
	if _, err := definition.ParseSelector(selector); err != nil {
		return err
	}
	f, err := definition.ParseField(s.def, "{take: html, type: list, of: html, css: "+yamlQuoted(selector)+"}", definition.FormatHTML)
	if err != nil {
		return err
	}
	t, err := sample.Try(s.def, s.doc, s.each, f)
	if err != nil {
		return err
	}
	shown := 0
	for _, v := range t.Values {
		var list []string
		if err := json.Unmarshal(v, &list); err != nil {
			return fmt.Errorf("read the matches: %w", err)
		}
		for _, text := range list {
			if shown++; shown > maxShown {
				break
			}
			fmt.Fprintln(s.env.stdout, text)
		}
	}
	if shown == 0 {
		fmt.Fprintln(s.env.stdout, matches(0))
	}
	return nil
}

// keep keeps the last selector or field under a name. One of the same name is replaced.
func (s *siteShell) keep(name string) error {
	switch {
	case name == "" || strings.HasPrefix(name, "_") || strings.ContainsAny(name, " \t:{}[],&*#?|<>=!%@`'\"\\"):
		return errors.New(":keep needs a name for the field: letters, digits, dashes and underscores")
	case s.last == "":
		return errors.New(":keep is for the last selector or field, and there was none")
	}
	text := s.last
	switch {
	case strings.HasPrefix(text, "{"):
	case s.doc.Root == nil:
		text = "{json: " + yamlQuoted(text) + "}"
	default:
		text = yamlQuoted(text)
	}
	for i, k := range s.kept {
		if k.name == name {
			s.kept[i].text = text
			return nil
		}
	}
	s.kept = append(s.kept, keptField{name, text})
	return nil
}

// yaml prints the kept fields.
func (s *siteShell) yaml() error {
	if len(s.kept) == 0 {
		return errors.New("no fields are defined; try one, and keep it with :keep NAME")
	}
	w := s.env.stdout
	fmt.Fprintf(w, "records:\n  item:\n    from: %s\n", s.doc.Page.Kind)
	switch {
	case s.each == "":
	case s.doc.Root == nil:
		fmt.Fprintf(w, "    each_json: %s\n", yamlQuoted(s.each))
	default:
		fmt.Fprintf(w, "    each: %s\n", yamlQuoted(s.each))
	}
	fmt.Fprintln(w, "    fields:")
	for _, k := range s.kept {
		fmt.Fprintf(w, "      %s: %s\n", k.name, k.text)
	}
	return nil
}

// run reads the page by the definition of --site, which may have changed.
func (s *siteShell) run() error {
	name := s.c.String("site")
	if name == "" {
		return errors.New(":run reads the page by a definition; begin with --site SITE-OR-FILE")
	}
	def, err := siteOf(s.env, s.c, name)
	if err != nil {
		return err
	}
	v, err := sample.Of(def, s.doc.Page)
	printView(s.env.stdout, v)
	for _, r := range v.Records[:min(len(v.Records), maxShown)] {
		fmt.Fprintf(s.env.stdout, "  %s\n", r)
	}
	return err
}

// yamlQuoted writes a text in YAML.
func yamlQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
