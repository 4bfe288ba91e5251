package extract

import (
	"bytes"

	"golang.org/x/net/html"
)

// How deeply elements may stand in one another in a page that the parser
// refuses for its depth: those of one name, and all together.
const (
	maxAlike   = 60
	maxNesting = 400
)

// flatten leaves out the tags of elements that are nested too deeply, not
// what is in them.
func flatten(text []byte) []byte {
	var out bytes.Buffer
	z := html.NewTokenizer(bytes.NewReader(text))
	depth := 0
	open := map[string]int{} // by name
	left := map[string]int{} // open elements whose tags were left out
	for {
		switch tt := z.Next(); tt {
		case html.ErrorToken:
			return out.Bytes()
		case html.StartTagToken:
			raw := bytes.Clone(z.Raw())
			name, _ := z.TagName()
			if void[string(name)] {
				out.Write(raw)
				continue
			}
			if (depth >= maxNesting || open[string(name)] >= maxAlike) && !rawText[string(name)] {
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

// void elements have no end tag; rawText elements hold no others.
var (
	void    = map[string]bool{"area": true, "base": true, "br": true, "col": true, "embed": true, "hr": true, "img": true, "input": true, "link": true, "meta": true, "source": true, "track": true, "wbr": true}
	rawText = map[string]bool{"script": true, "style": true, "textarea": true, "title": true}
)
