package testutil

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	keyLine    = regexp.MustCompile(`^( *)(- )?([a-z_]+):(?:.*?\s# (.*))?`)
	unusedKey  = regexp.MustCompile(`^ *# ( *)(- )?([a-z_]+):(?:.*?\s# (.*)|(?: \S+| {[^{}]*})?$)`)
	plainWord  = regexp.MustCompile(`^[a-z]+[ ;]`)
	isDefault  = regexp.MustCompile(`^default(; |$)`)
	moreOfLine = regexp.MustCompile(`^ *# {8,}# (.*)|^ {20,}# (.*)`)
)

// Remarks returns the comments in an example YAML file by the dotted path of their key, as Markdown paragraphs and lists. A comment
// consists of the lines above a key, the trailing comment on its line, and deeply indented comment lines below. The remark that a
// value is the default is omitted. A key can be commented out. The first comment of a path wins. used contains the paths with a value.
func Remarks(t testing.TB, file string) (remarks map[string]string, used map[string]bool) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]string{}
	used = map[string]bool{}
	type level struct {
		indent int
		path   string
	}
	var levels []level
	var comment []string
	var last string // path of the comment on the previous line
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, "\n")
		if m := moreOfLine.FindStringSubmatch(line); m != nil && last != "" {
			lines[last] = append(lines[last], m[1]+m[2])
			continue
		}
		m, indent := keyLine.FindStringSubmatch(line), 0
		isUsed := m != nil
		if !isUsed {
			if m = unusedKey.FindStringSubmatch(line); m != nil {
				indent = strings.Index(line, "#")
			}
		}
		last = ""
		if m == nil {
			text, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "#")
			if comment = append(comment, strings.TrimPrefix(text, " ")); !ok {
				comment = nil
			}
			continue
		}
		indent += len(m[1]) + len(m[2])
		for len(levels) > 0 && levels[len(levels)-1].indent >= indent {
			levels = levels[:len(levels)-1]
		}
		path := m[3]
		if len(levels) > 0 {
			path = levels[len(levels)-1].path + "." + path
		}
		levels = append(levels, level{indent, path})
		used[path] = used[path] || isUsed
		if m[4] != "" {
			comment = append(comment, m[4])
		}
		if len(lines[path]) == 0 {
			lines[path] = comment
			last = path
		}
		comment = nil
	}
	remarks = map[string]string{}
	for path, text := range lines {
		remarks[path] = paragraphs(text)
	}
	return remarks, used
}

// itemWords is the number of words that further sentences of a text may fill.
const itemWords = 12

// Item returns a remark as the text of a list item, with its list below. Long texts are cut, except for the default; the example file has all of them.
func Item(remark string) string {
	text, list, _ := strings.Cut("\n"+strings.TrimSpace(remark), "\n* ")
	kept := brief(text)
	if list != "" {
		list, _, _ = strings.Cut(list, "\n\n")
		for member := range strings.SplitSeq(list, "\n* ") {
			kept += "\n  * " + brief(member)
		}
	}
	return kept
}

// brief returns the first sentence of a text, those that follow within itemWords, and the default.
func brief(text string) string {
	kept, full := "", false
	for sentence := range strings.SplitAfterSeq(strings.Join(strings.Fields(text), " "), ". ") {
		full = full || kept != "" && len(strings.Fields(kept+sentence)) > itemWords
		if !full || strings.HasPrefix(sentence, "Default:") || strings.HasPrefix(sentence, "Empty:") {
			kept += sentence
		}
	}
	return strings.TrimSpace(kept)
}

// paragraphs converts the lines of a comment to Markdown. A word followed by spaces and text is a list item; indented text continues
// the previous line. The result starts with a capital letter and ends with a period.
func paragraphs(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	member := regexp.MustCompile(`^(\w+)  +(\S.*)`)
	escape := strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`)
	out, list := "", false
	for _, line := range lines {
		m := member.FindStringSubmatch(line)
		switch {
		case m != nil:
			if !list && out != "" {
				out += "\n"
			}
			out += "\n* `" + m[1] + "`: " + escape.Replace(m[2])
			list = true
		case list && !strings.HasPrefix(line, " "):
			out += "\n\n" + escape.Replace(line)
			list = false
		case out == "":
			out = escape.Replace(line)
		default:
			out += "\n" + strings.Repeat("  ", map[bool]int{true: 1}[list]) + escape.Replace(strings.TrimSpace(line))
		}
	}
	out = isDefault.ReplaceAllString(strings.TrimLeft(out, "\n"), "")
	if out == "" {
		return ""
	}
	if begin := plainWord.FindString(out); begin != "" {
		out = strings.ToUpper(begin[:1]) + out[1:]
	}
	if last := out[len(out)-1]; !list && !strings.ContainsRune(".:…", rune(last)) {
		out += "."
	}
	return "\n" + out + "\n"
}
