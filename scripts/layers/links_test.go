package layers

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// mdLink finds the target of a link or a picture of Markdown, or of HTML in it.
	mdLink = regexp.MustCompile(`\]\(<?([^)>\s]+)>?(?:\s+"[^"]*")?\)|(?:href|src|srcset)="([^"]+)"`)
	// pageName finds a page of docs/ that code, settings or a test name.
	pageName = regexp.MustCompile(`\bdocs/[\w./-]+\.(?:md|json|svg|png)(?:#[\w-]+)?`)
	mdCode   = regexp.MustCompile("``.+?``|`[^`\n]+`")
	heading  = regexp.MustCompile(`^#{1,6} +(.+?)[ #]*$`)
)

// A link of a page leads to a file of the tree, and its anchor to a heading of that file. So do the names of pages of
// docs/ elsewhere, such as in comments and in alerts.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, name := range tracked(t) {
		seen[name] = true
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	links := 0
	for _, from := range tracked(t) {
		if !slices.ContainsFunc(read, func(end string) bool { return strings.HasSuffix(from, end) }) || strings.Contains(from, "/testdata/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("../..", from))
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		var places [][]int
		if strings.HasSuffix(from, ".md") {
			text = withoutCode(text)
			places = mdLink.FindAllStringSubmatchIndex(text, -1)
		} else {
			places = pageName.FindAllStringIndex(text, -1)
		}
		for _, at := range places {
			target := text[at[0]:at[1]]
			dir := "."
			if strings.HasSuffix(from, ".md") {
				m := max(at[2], at[4])
				target, dir = text[m:max(at[3], at[5])], path.Dir(from)
			}
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			to := from
			if file != "" {
				to = path.Join(dir, file)
			}
			if to != "." && !seen[to] {
				t.Errorf("%s: %s: the tree has no %s", where(from, text, at[0]), target, to)
			} else if anchor != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors(t, to), anchor) {
				t.Errorf("%s: %s: no heading of %s has this anchor", where(from, text, at[0]), target, to)
			}
		}
	}
	if links < 150 {
		t.Errorf("saw %d links; are they read as they should be?", links)
	}
}

// The index of the documentation has each of its pages, and says something on it.
func TestIndexOfDocsHasEachPage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range tracked(t) {
		name, ok := strings.CutPrefix(page, "docs/")
		if !ok || name == "README.md" || !strings.HasSuffix(name, ".md") {
			continue
		}
		if !regexp.MustCompile(`\]\(` + regexp.QuoteMeta(name) + `\)[^\n]* \w`).Match(raw) {
			t.Errorf("docs/README.md has no line on %s", name)
		}
	}
}

// withoutCode returns Markdown with blanks for blocks of code and code in lines.
func withoutCode(text string) string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		bare := strings.TrimLeft(line, " ")
		switch {
		case fence == "" && strings.HasPrefix(bare, "```"):
			fence = bare[:len(bare)-len(strings.TrimLeft(bare, "`"))]
		case fence == "":
			continue
		case strings.TrimRight(bare, " ") == fence:
			fence = ""
		}
		lines[i] = ""
	}
	return mdCode.ReplaceAllStringFunc(strings.Join(lines, "\n"), func(code string) string { return strings.Repeat("x", len(code)) })
}

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) (out []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	bare := strings.Split(withoutCode(text), "\n")
	for i, line := range strings.Split(text, "\n") {
		m := heading.FindStringSubmatch(line)
		if m == nil || !strings.HasPrefix(bare[i], "#") {
			continue
		}
		title := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		slug := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(title), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	}
	return out
}
