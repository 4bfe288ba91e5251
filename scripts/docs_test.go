package scripts

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testutil"
)

// The documentation builds in a new clone, without broken links.
func TestDocsBuildInAClone(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it builds all pages")
	}
	t.Parallel()
	dir := checkout(t)
	got, err := sh(t, dir, "scripts/docs.sh")
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.ExitCode() == 2 {
		t.Skip("NOT CHECKED: " + got)
	}
	if err != nil || got != "dist/site/index.html\n" {
		t.Fatalf("got %q and %v, want only the name of the first page", got, err)
	}
	page := testutil.Must(os.ReadFile(filepath.Join(dir, "dist/site/docs/reference/cli.html")))(t)
	if strings.Contains(string(page), "–") {
		t.Error("cli.html: got a dash for the two hyphens of a flag")
	}
	for name, want := range map[string]string{
		"index.html":                         "<small>dev</small>",
		"docs/tutorials/first-workflow.html": "copy.js",
		"docs/reference/api.html":            `<span class="pre">/v1/webhooks</span>`,
	} {
		if text, err := os.ReadFile(filepath.Join(dir, "dist/site", name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: got %v, want a page with %q", name, err, want)
		}
	}
	worksOffline(t, filepath.Join(dir, "dist/site"))
}

// worksOffline checks that the pages use no external resources and that the search index is complete.
func worksOffline(t *testing.T, site string) {
	t.Helper()
	index, err := os.ReadFile(filepath.Join(site, "searchindex.js"))
	if err != nil || !strings.Contains(string(index), "docs/concepts/engine") {
		t.Errorf("searchindex.js: got %v and %d bytes, want all pages", err, len(index))
	}
	away := regexp.MustCompile(`(?:<(?:script|img|iframe|link)\b[^>]*(?:src|href)=|@import |url\()["']?(?:https?:)?/`)
	err = fs.WalkDir(os.DirFS(site), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" && filepath.Ext(name) != ".css" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(site, name))
		if found := away.Find(text); found != nil {
			t.Errorf("%s loads an external resource: %s", name, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// llms.txt links to each page, and llms-full.txt has them all. They are made without Sphinx too.
func TestTextForLanguageModelsIsComplete(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	_, _ = sh(t, dir, "env", "PYTHON=false", "scripts/docs.sh")
	read := func(name string) string {
		text := testutil.Must(os.ReadFile(filepath.Join(dir, name)))(t)
		return string(text)
	}
	links, full := read("dist/site/llms.txt"), read("dist/site/llms-full.txt")
	if !strings.HasPrefix(links, "# Muster\n\n> Durable workflows") || strings.Contains(links, "](../") {
		t.Errorf("got %.300s", links)
	}
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(links, -1) {
		if _, err := os.Stat(filepath.Join(dir, "dist/site", m[1])); err != nil && !strings.HasPrefix(m[1], "http") {
			t.Errorf("llms.txt: %v", err)
		}
	}
	pages := []string{"sites/README.md", "examples/agents/README.md"}
	testutil.Ok(t, filepath.WalkDir(filepath.Join(dir, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" && filepath.Base(path) != "README.md" {
			path, err = filepath.Rel(dir, path)
			pages = append(pages, path)
		}
		return err
	}))
	for _, page := range pages {
		if !strings.Contains(links, "]("+page+")") || !strings.Contains(full, "<!-- "+page+" -->\n\n"+read(page)) {
			t.Errorf("%s is missing", page)
		}
	}
}

// Without Sphinx, the error lists the missing packages.
func TestDocsNameMissingPackages(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testutil.Ok(t, os.WriteFile(filepath.Join(tools, "python3"), []byte("#!/bin/sh\n[ \"$2\" = 'import furo' ]\n"), 0o700))
	out, err := sh(t, checkout(t), "env", "PYTHON="+filepath.Join(tools, "python3"), "scripts/docs.sh")
	const want = "docs: needed and not installed: python3-sphinx python3-myst-parser. On Debian: apt-get install python3-sphinx python3-myst-parser\n"
	if err == nil || out != want {
		t.Errorf("got %q and %v, want %q and an error", out, err, want)
	}
}
