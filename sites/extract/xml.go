package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"mime"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// inXML is the namespace of the elements of a page that was read as XML.
const inXML = "xml"

var xmlStart = regexp.MustCompile(`^(?:\s|<\?[^>]*\?>|<!--[\s\S]*?-->|<!DOCTYPE\s[^>\[]*>)*<([^\s/>!?]+)`)

// isXML reports whether a page is XML other than XHTML, by its Content-Type, XML declaration and first element.
func isXML(contentType string, text []byte) bool {
	m := xmlStart.FindSubmatch(text[:min(len(text), 8<<10)])
	if m == nil {
		return false
	}
	root := strings.ToLower(string(m[1]))
	if i := strings.IndexByte(root, ':'); i >= 0 {
		root = root[i+1:]
	}
	switch root {
	case "html", "head", "body":
		return false
	case "rss", "feed", "rdf", "urlset":
		return true
	}
	mt, _, _ := mime.ParseMediaType(contentType)
	declared := mt == "text/xml" || strings.HasSuffix(mt, "/xml") || strings.HasSuffix(mt, "+xml")
	return mt != "application/xhtml+xml" && (declared || bytes.HasPrefix(bytes.TrimSpace(text), []byte("<?xml")) && mt != "text/html")
}

// withoutControls maps characters that XML does not allow to -1.
func withoutControls(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' && r != '\r' {
		return -1
	}
	return r
}

// parseXML parses XML to a document whose names are in lower case, as in HTML, and have their prefixes. End tags
// without a start are skipped. Text without elements, or nested too deeply, is an error.
func parseXML(text []byte) (*html.Node, error) {
	dec := xml.NewDecoder(bytes.NewReader(bytes.Map(withoutControls, text)))
	dec.Strict = false
	dec.Entity = xml.HTMLEntity
	dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // already UTF-8
	name := func(n xml.Name) string {
		if n.Space != "" {
			return strings.ToLower(n.Space + ":" + n.Local)
		}
		return strings.ToLower(n.Local)
	}
	root := &html.Node{Type: html.DocumentNode}
	open := []*html.Node{root}
	var chars []byte // text of the last element of open
	flush := func() {
		if len(chars) > 0 {
			open[len(open)-1].AppendChild(&html.Node{Type: html.TextNode, Data: string(chars)})
			chars = chars[:0]
		}
	}
	for {
		tok, err := dec.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			n := &html.Node{Type: html.ElementNode, Data: name(tok.Name), Namespace: inXML}
			for _, a := range tok.Attr {
				n.Attr = append(n.Attr, html.Attribute{Key: name(a.Name), Val: a.Value})
			}
			flush()
			open[len(open)-1].AppendChild(n)
			if open = append(open, n); len(open) > maxNesting {
				return nil, errors.New("nested too deeply")
			}
		case xml.EndElement:
			ended := name(tok.Name)
			for i := len(open) - 1; i > 0; i-- {
				if open[i].Data == ended {
					flush()
					open = open[:i]
					break
				}
			}
		case xml.CharData:
			if len(open) > 1 {
				chars = append(chars, tok...)
			}
		}
	}
	flush()
	if root.FirstChild == nil {
		return nil, errors.New("has no element")
	}
	return root, nil
}

// renderXML writes a node of an XML page.
func renderXML(b *strings.Builder, n *html.Node) {
	switch n.Type {
	case html.TextNode:
		b.WriteString(html.EscapeString(n.Data))
		return
	case html.ElementNode:
		b.WriteString("<" + n.Data)
		for _, a := range n.Attr {
			b.WriteString(" " + a.Key + `="` + html.EscapeString(a.Val) + `"`)
		}
		b.WriteString(">")
		defer b.WriteString("</" + n.Data + ">")
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		renderXML(b, c)
	}
}
