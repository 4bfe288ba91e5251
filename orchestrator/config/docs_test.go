package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page on settings lists exactly those that take effect without a restart, and
// those that are secret.
func TestPageListsWhatReloads(t *testing.T) {
	t.Parallel()
	page := deployed(t, "docs/settings.md")
	name := regexp.MustCompile("`([a-z_]+)`")
	_, table, ok := strings.Cut(page, "| section | settings |\n|---|---|\n")
	if !ok {
		t.Fatal("there is no table of settings")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var got []string
	for line := range strings.Lines(table) {
		words := name.FindAllStringSubmatch(line, -1)
		for _, w := range words[1:] {
			if path := words[0][1] + "." + w[1]; !slices.Contains(got, path) {
				got = append(got, path)
			}
		}
	}
	_, list, _ := strings.Cut(page, "Settings that are secret:")
	list, _, _ = strings.Cut(list, "The end")
	var want []string
	c := Default()
	for _, s := range settings(&c) {
		if s.reloads() {
			want = append(want, s.path)
		}
		if s.secret() != strings.Contains(list, "`"+s.path+"`") {
			t.Errorf("%s: secret is %v, and the page says otherwise", s.path, s.secret())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the page lists\n%q, want\n%q", got, want)
	}
}
