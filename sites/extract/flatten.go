package extract

import (
	"bytes"

	"golang.org/x/net/html"
)

// Maximum nesting of elements in a page that is too deep for the parser, per name and in total.
const (
	maxAlike   = 60
	maxNesting = 400
)

// flatten removes the tags of elements that are nested too deeply and keeps their content.
func flatten(text []byte) []byte {
	var out bytes.Buffer
	z := html.NewTokenizer(bytes.NewReader(text))
	depth := 0
	open := map[string]int{} // by name
	left := map[string]int{} // open elements whose tags were removed
	for {
		switch tt := z.Next(); tt {
		case html.ErrorToken:
			return out.Bytes()
		case html.StartTagToken:
			raw := bytes.Clone(z.Raw())
			name, _ := z.TagName()
			if isVoid(string(name)) {
				out.Write(raw)
				continue
			}
			if (depth >= maxNesting || open[string(name)] >= maxAlike) && !isRawText(string(name)) {
				left[string(name)]++
				continue
			}
			depth++
			open[string(name)]++
			out.Write(raw)
		case html.EndTagToken:
			raw := bytes.Clone(z.Raw())
			name, _ := z.TagName()
			if left[string(name)] > 0 {
				left[string(name)]--
				continue
			}
			if open[string(name)] > 0 {
				open[string(name)]--
				depth--
			}
			out.Write(raw)
		default:
			out.Write(z.Raw())
		}
	}
}

// isVoid reports whether an element has no end tag.
func isVoid(name string) bool {
	switch name {
	case "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr":
		return true
	}
	return false
}

// isRawText reports whether an element contains only text.
func isRawText(name string) bool {
	return name == "script" || name == "style" || name == "textarea" || name == "title"
}
