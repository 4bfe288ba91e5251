package extract

import (
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/html"
)

// imageOf returns the URL of an element's image: the largest of its srcset, an image that a script loads lazily, src, or the
// background of its style. For other elements it uses their first image.
func imageOf(n *html.Node) string {
	if n.Type != html.ElementNode {
		return strings.TrimSpace(n.Data)
	}
	if n.Data != "img" && n.Data != "source" && n.Data != "picture" {
		if style, ok := Attr(n, "style"); ok {
			if m := background.FindStringSubmatch(style); m != nil {
				return m[1]
			}
		}
	}
	for _, name := range []string{"data-srcset", "data-lazy-srcset", "srcset"} {
		if set, ok := Attr(n, name); ok {
			if at := largest(set); isImage(at) {
				return at
			}
		}
	}
	for _, name := range []string{
		"data-src", "data-original", "data-lazy-src", "data-lazy", "data-full", "data-image", "data-url", "data-hi-res-src", // loaded by a script
		"src",
	} {
		if v, ok := Attr(n, name); ok && isImage(v) {
			return strings.TrimSpace(v)
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type == html.ElementNode {
			if at := imageOf(c); at != "" {
				return at
			}
		}
	}
	return ""
}

var background = regexp.MustCompile(`(?i)background(?:-image)?\s*:[^;]*url\(\s*["']?([^"')]+)["']?\s*\)`)

// isImage reports whether a URL is a real image and not a placeholder.
func isImage(v string) bool {
	v = strings.TrimSpace(v)
	return v != "" && !strings.HasPrefix(v, "data:") && !strings.HasPrefix(v, "about:")
}

// largest returns the candidate of a srcset with the largest width or density.
func largest(set string) string {
	best, size := "", -1.0
	for len(set) > 0 {
		set = strings.TrimLeft(set, ", \t\r\n")
		end := strings.IndexAny(set, " \t\r\n")
		if end < 0 {
			end = len(set)
		}
		at, rest := set[:end], set[end:]
		if strings.HasSuffix(at, ",") { // no descriptor
			at, set = strings.TrimRight(at, ","), rest
			rest = ""
		} else if i := strings.IndexByte(rest, ','); i >= 0 {
			rest, set = rest[:i], rest[i+1:]
		} else {
			set = ""
		}
		f, ok := 1.0, true
		for d := range strings.FieldsSeq(rest) {
			v, err := strconv.ParseFloat(d[:len(d)-1], 64)
			switch unit := d[len(d)-1]; {
			case err != nil || v < 0 || unit != 'w' && unit != 'x' && unit != 'h':
				ok = false // browsers ignore such a candidate
			case unit != 'h':
				f = v
			}
		}
		if at != "" && ok && f > size {
			best, size = at, f
		}
	}
	return best
}
