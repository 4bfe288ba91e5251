package layers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// idioms are phrases that a reader has to guess at, and the plain words for them. A phrase that is right in one
// place, such as a term of a protocol, goes to plainHere.
var idioms = []struct{ phrase, plain string }{
	{`(is|are|was|were|be|been|being) had`, "is fetched, is available, exists"},
	{`nobody`, "no client, no worker, none, nil"},
	{`tell(s|ing)? (whether|if)|told (whether|if)`, "reports whether"},
	{`(come|comes|came|coming) along`, "arrives, is next"},
	{`on the way`, "in flight, being fetched, pending"},
	{`in vain`, "without success, no longer"},
	{`(put|puts|putting) off`, "delayed"},
	{`who(ever)? asks`, "the caller, the client"},
	{`for (who|whoever)`, "for callers that, for users who"},
	{`notions?`, "idea; say which"},
	{`dear(er)?`, "expensive"},
	{`heed(s|ed|ing)?`, "obey, follow, use"},
	{`tamed?`, "limit, clean"},
	{`for good`, "permanently, for ever"},
	{`at hand`, "available"},
	{`(is|are|was|were) to (be|have)`, "must be, will be"},
	{`(give|gives|given|gave|giving) back`, "return"},
	{`all the same`, "anyway, even so"},
	{`(go|goes|went|going) on`, "continue"},
	{`by chance`, "at random"},
	{`has (his|its|their) say`, "decides"},
	{`(sit|sits|sat|sitting) out`, "wait for"},
	{`owed`, "pending, not yet returned"},
	{`nought|upon|thereof|whereof|therein|whence|hither|thither`, "a word of this century"},
}

// plainHere are lines that may use a phrase of the list, by file and a part of the line.
var plainHere = map[string][]string{
	"scripts/layers/words_test.go":              {""},
	"SECURITY.md":                               {"`nobody`"}, // the user of Unix systems
	"orchestrator/redisd/stranger_unix_test.go": {"nobody"},
	"sites/sink/sink_test.go":                   {`Lookup("nobody")`},
}

// read are the files in which words are read by people.
var read = []string{".go", ".md", ".lua", ".yaml", ".yml", ".sh", ".txtar", ".html", ".tmpl", ".py", "Makefile"}

// Text is in plain words: a private idiom is a defect, however consistent.
func TestWordsArePlain(t *testing.T) {
	t.Parallel()
	var parts []string
	for _, i := range idioms {
		parts = append(parts, "("+strings.NewReplacer("(", "(?:", " ", `[\s/#*]+`).Replace(i.phrase)+")")
	}
	any := regexp.MustCompile(`(?i)\b(?:` + strings.Join(parts, "|") + `)\b`)
	for _, path := range tracked(t) {
		if !slices.ContainsFunc(read, func(end string) bool { return strings.HasSuffix(path, end) }) || strings.Contains(path, "/testdata/pages/") {
			continue
		}
		src, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Fatal(err)
		}
		text := string(src)
		for _, at := range any.FindAllStringSubmatchIndex(text, -1) {
			begin := strings.LastIndexByte(text[:at[0]], '\n') + 1
			line, _, _ := strings.Cut(text[begin:], "\n")
			if text[at[0]:at[1]] == "NoBody" { // of net/http
				continue
			}
			if slices.ContainsFunc(plainHere[path], func(part string) bool { return strings.Contains(line, part) }) {
				continue
			}
			for i := range idioms {
				if at[2*i+2] >= 0 {
					t.Errorf("%s: %q: say %s", where(path, text, at[0]), text[at[0]:at[1]], idioms[i].plain)
				}
			}
		}
	}
}

// where is the place of a byte of a file, as path:line.
func where(path, text string, at int) string {
	return fmt.Sprintf("%s:%d", path, 1+strings.Count(text[:at], "\n"))
}

// tracked returns the files of the module that git knows, or that are new and not ignored.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("NOT COVERED: this is no git checkout: %v", err)
	}
	var files []string
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if _, err := os.Stat(filepath.Join("../..", path)); err == nil {
			files = append(files, path)
		}
	}
	return files
}
