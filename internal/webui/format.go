package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"muster/internal/clip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// formats contains the functions of all templates.
var formats = template.FuncMap{
	"when":   When,
	"took":   Took,
	"short":  Short,
	"number": Number,
	"plain":  Plain,
	"line":   OneLine,
	"seg":    url.PathEscape,
	"list":   func(all ...any) []any { return all },
	// head returns at most n elements of a list, and rest the number of the others.
	"head": func(n int, list any) any {
		v := reflect.ValueOf(list)
		return v.Slice(0, min(n, v.Len())).Interface()
	},
	"rest": func(n int, list any) int { return max(reflect.ValueOf(list).Len()-n, 0) },
	"text": NewDocument,
	"json": NewJSON,
}

// When formats a time, or a dash for the zero time. live.js converts it to a form such as "3 min ago".
func When(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05 UTC"))) //nolint:gosec // of a time only
}

// Took formats a duration with two or three digits, or a dash if it is negative.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d == 0: // times of tasks are in milliseconds
		return "< 1 ms"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Short returns the beginning of a long ID.
func Short(id string) string {
	if runes := []rune(id); len(runes) > 20 {
		return string(runes[:19]) + "…"
	}
	return id
}

// OneLine returns the beginning of an untrusted string on one line, at most n characters, safe for display.
func OneLine(n int, s string) string { return Plain(clip.Line(s, n)) }

// Plain makes an untrusted string safe for display: characters that are invisible or change the text direction are written as
// \u202e. Line breaks and tabs remain.
func Plain(s string) string {
	odd := func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError)
	}
	if !strings.ContainsFunc(s, odd) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if odd(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Number formats an integer with a space between groups of thousands.
func Number(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// Group is a group of values with the same key.
type Group[V any] struct {
	Key   string
	First V
	Count int
}

// Grouped groups values by their keys, the largest group first.
func Grouped[V any](list []V, key func(V) string) (all []Group[V]) {
	at := map[string]int{}
	for _, v := range list {
		k := key(v)
		i, ok := at[k]
		if !ok {
			i = len(all)
			at[k] = i
			all = append(all, Group[V]{Key: k, First: v})
		}
		all[i].Count++
	}
	slices.SortStableFunc(all, func(a, b Group[V]) int { return b.Count - a.Count })
	return all
}

// templates is a file system of templates. Tables without a class that have a head get the class cards, and their cells the title of the
// column in the attribute data-title: on phones, each row is shown as a card.
type templates struct{ fs.FS }

// ReadFile returns a template, as [fs.ReadFile] does.
func (t templates) ReadFile(name string) ([]byte, error) {
	raw, err := fs.ReadFile(t.FS, name)
	return []byte(tables.ReplaceAllStringFunc(string(raw), cards)), err
}

var (
	tables = regexp.MustCompile(`(?s)<table>\s*<thead>.*?</table>`)
	heads  = regexp.MustCompile(`<th[ >].*?</th>`)
	cells  = regexp.MustCompile(`<tr|<td( colspan)?`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// cards adds the titles of the columns to the cells of a table. The cells of a row are in the order of the columns; both may depend on
// the same conditions. A cell that spans columns has no title: it replaces cells if there is nothing to show. It panics if there are more
// cells than columns.
func cards(table string) string {
	head, body, _ := strings.Cut(table, "</thead>")
	var titles []string
	for _, th := range heads.FindAllString(head, -1) {
		titles = append(titles, tags.ReplaceAllString(th, ""))
	}
	i := 0
	body = cells.ReplaceAllStringFunc(body, func(tag string) string {
		switch tag {
		case "<tr":
			i = 0
			return tag
		case "<td colspan":
			return tag
		}
		if i++; i > len(titles) {
			panic("more cells than columns: " + table)
		}
		return `<td data-title="` + titles[i-1] + `"`
	})
	return strings.Replace(head, "<table>", `<table class="cards">`, 1) + "</thead>" + body
}

// Document is a text that may be truncated.
type Document struct {
	Text  string // safe for display
	Bytes int    // of the whole text
	Cut   bool   // Text is truncated
}

// NewDocument returns a text of which at most n bytes are shown.
func NewDocument(n int, s string) Document {
	head := clip.Bytes(s, n)
	return Document{Plain(head), len(s), len(head) < len(s)}
}

// NewJSON is like NewDocument for JSON, which is indented unless it is truncated.
func NewJSON(n int, raw json.RawMessage) Document {
	var b bytes.Buffer
	if len(raw) > n || json.Indent(&b, raw, "", "  ") != nil {
		return NewDocument(n, string(raw))
	}
	return Document{Plain(b.String()), len(raw), false}
}
