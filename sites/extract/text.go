package extract

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"muster/internal/clip"
	"muster/sites/definition"
)

// Text returns the visible text of a node. It folds white space, separates blocks and lines by spaces, and skips scripts, styles,
// templates and noscripts, unless n itself is a template or noscript.
func Text(n *html.Node) string {
	w := folder{aside: definition.IsAside(n)}
	w.node(n)
	return w.b.String()
}

// textUpTo returns the text of n, truncated after about size bytes.
func textUpTo(n *html.Node, size int) string {
	w := folder{limit: size}
	w.node(n)
	return w.b.String()
}

// ownText returns the text of n without the text of its child elements.
func ownText(n *html.Node) string {
	var w folder
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if c.Type == html.TextNode {
			w.text(c.Data)
		} else {
			w.space = true
		}
	}
	return w.b.String()
}

// Lines returns the text of each block of n. aside includes templates and noscripts.
func Lines(n *html.Node, aside bool) []string {
	w := folder{lines: true, aside: aside}
	w.node(n)
	return strings.Split(w.b.String(), "\n")
}

// Fold folds white space like Text.
func Fold(s string) string {
	var w folder
	w.text(s)
	return w.b.String()
}

// folder writes words separated by single spaces.
type folder struct {
	b     strings.Builder
	space bool // write a space before the next letter
	cut   bool // the space is the boundary of a block
	lines bool // separate blocks by line ends
	limit int  // stop after this many bytes; 0: never
	aside bool // include templates and noscripts
}

func (w *folder) full() bool { return w.limit > 0 && w.b.Len() >= w.limit }

func (w *folder) node(n *html.Node) {
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
		return
	case html.CommentNode, html.DoctypeNode:
		return
	case html.ElementNode:
		switch n.DataAtom {
		case atom.Script, atom.Style:
			return
		case atom.Noscript, atom.Template:
			if definition.IsAside(n) && !w.aside {
				return
			}
		case atom.Br:
			w.space, w.cut = true, true
			return
		}
	}
	block := n.Type == html.ElementNode && !isInline(n)
	w.space, w.cut = w.space || block, w.cut || block
	for c := n.FirstChild; c != nil && !w.full(); c = c.NextSibling {
		w.node(c)
	}
	w.space, w.cut = w.space || block, w.cut || block
}

func (w *folder) text(s string) {
	for i := 0; i < len(s); {
		if w.full() {
			return
		}
		if end := wordEnd(s, i); end > i { // the common case
			if w.limit > 0 {
				end = min(end, i+w.limit-w.b.Len())
			}
			w.gap()
			w.b.WriteString(s[i:end])
			i = end
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		i += size
		switch {
		case r == ' ' || r == '\n' || r == '\t' || (r != '\u0085' && unicode.IsSpace(r)):
			w.space = true
		case r == '\u00ad' || r == '\u200b' || r == '\ufeff': // only mark possible line breaks
		default:
			w.gap()
			w.b.WriteRune(r)
		}
	}
}

// wordEnd returns the end of the printable ASCII that begins at i.
func wordEnd(s string, i int) int {
	for i < len(s) && s[i] > ' ' && s[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// gap writes the separator before a word, if there must be one.
func (w *folder) gap() {
	if w.space && w.b.Len() > 0 {
		if w.cut && w.lines {
			w.b.WriteByte('\n')
		} else {
			w.b.WriteByte(' ')
		}
	}
	w.space, w.cut = false, false
}

// isInline reports whether an element is inline. Unknown elements are inline.
func isInline(n *html.Node) bool {
	switch n.DataAtom {
	case 0,
		atom.A, atom.Abbr, atom.B, atom.Bdi, atom.Bdo, atom.Big, atom.Cite, atom.Code, atom.Data, atom.Del, atom.Dfn,
		atom.Em, atom.Font, atom.I, atom.Img, atom.Ins, atom.Kbd, atom.Label, atom.Mark, atom.Q, atom.S, atom.Samp,
		atom.Small, atom.Span, atom.Strike, atom.Strong, atom.Sub, atom.Sup, atom.Time, atom.Tt, atom.U, atom.Var, atom.Wbr:
		return true
	}
	return false
}

// Attr returns the value of an attribute of n, and whether n has it.
func Attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// render returns the markup of n, or of its content if inner is set. The inner markup of an XML element with only text is the
// text, because feeds contain escaped markup.
func render(n *html.Node, inner bool) string {
	var b strings.Builder
	if n.Namespace == inXML {
		switch first := n.FirstChild; {
		case !inner:
			renderXML(&b, n)
		case first != nil && first == n.LastChild && first.Type == html.TextNode:
			b.WriteString(first.Data)
		default:
			for c := first; c != nil; c = c.NextSibling {
				renderXML(&b, c)
			}
		}
		return strings.TrimSpace(b.String())
	}
	if !inner {
		_ = html.Render(&b, n) // writes to a Builder never fail
		return b.String()
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		_ = html.Render(&b, c)
	}
	return strings.TrimSpace(b.String())
}

func short(s string) string { return clip.Line(s, 60) }
