package extract

import (
	"bytes"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/simplifiedchinese"
	xunicode "golang.org/x/text/encoding/unicode"

	"muster/sites/definition"
)

// Charset is the charset of a page and its origin.
type Charset struct {
	Name string // as in the WHATWG encoding standard
	From string // bom, utf-8 body, definition, header, meta, bytes, default
}

// certain is the surplus of valid multi-byte sequences from which header, meta and definition are ignored: another charset is then
// very unlikely.
const certain = 8

// Decode converts a page to UTF-8. It takes the charset from the first of these: a byte order mark; the body, if most of its
// non-ASCII sequences are valid UTF-8, and either no charset is declared or there are too many of them for another charset; the
// definition, which may be nil; the Content-Type header; the meta element in the first 4 KiB; windows-1252. Invalid bytes become
// U+FFFD.
func Decode(body []byte, contentType string, def *definition.Definition) ([]byte, Charset) {
	for _, m := range marks() {
		if bytes.HasPrefix(body, []byte(m.prefix)) {
			return decodeWith(m.enc, body), Charset{m.name, m.from}
		}
	}
	header := headerCharset(contentType)
	label := ""
	if def != nil {
		label = def.Encoding
	}
	surplus := utf8Surplus(body)
	if surplus >= certain || surplus > 0 && header == "" && label == "" {
		return validUTF8(body), Charset{"utf-8", "utf-8 body"}
	}
	meta := declaredCharset(body[:min(len(body), 4096)])
	for _, c := range []struct{ label, from string }{{label, "definition"}, {header, "header"}, {meta, "meta"}} {
		enc, name := lookup(c.label)
		switch {
		case enc == nil, name == "utf-8" && surplus < 0:
			continue // unknown, or declared as UTF-8 and mostly invalid
		case name == "utf-8":
			return validUTF8(body), Charset{name, c.from}
		}
		return decodeWith(enc, body), Charset{name, c.from}
	}
	if surplus >= 0 {
		return validUTF8(body), Charset{"utf-8", "default"}
	}
	return decodeWith(charmap.Windows1252, body), Charset{"windows-1252", "default"}
}

// marks returns initial bytes that identify a charset: byte order marks, and the < of a document.
func marks() []mark {
	return []mark{
		{"\xef\xbb\xbf", "utf-8", "bom", xunicode.UTF8BOM},
		{"\xff\xfe", "utf-16le", "bom", xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM)},
		{"\xfe\xff", "utf-16be", "bom", xunicode.UTF16(xunicode.BigEndian, xunicode.UseBOM)},
		{"<\x00", "utf-16le", "bytes", xunicode.UTF16(xunicode.LittleEndian, xunicode.IgnoreBOM)},
		{"\x00<", "utf-16be", "bytes", xunicode.UTF16(xunicode.BigEndian, xunicode.IgnoreBOM)},
	}
}

type mark struct {
	prefix, name, from string
	enc                encoding.Encoding
}

func headerCharset(contentType string) string {
	if _, params, err := mime.ParseMediaType(contentType); err == nil {
		return params["charset"]
	}
	// Broken headers are common, such as: text/html; charset=utf-8; charset
	_, rest, ok := strings.Cut(strings.ToLower(contentType), "charset=")
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, ";")
	return strings.Trim(rest, ` "'`)
}

// declaredCharset returns the charset declared in the head of a page, in a meta element or as XML.
func declaredCharset(head []byte) (label string) {
	z := html.NewTokenizer(bytes.NewReader(head))
	for label == "" {
		switch z.Next() {
		case html.ErrorToken:
			return label
		case html.CommentToken: // in HTML an XML declaration is a comment
			if m := xmlEncoding.FindSubmatch(z.Raw()); m != nil {
				label = string(m[1])
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			n := z.Token()
			attrs := map[string]string{}
			for _, a := range n.Attr {
				attrs[a.Key] = a.Val
			}
			switch {
			case n.DataAtom != atom.Meta:
			case attrs["charset"] != "":
				label = attrs["charset"]
			case strings.EqualFold(attrs["http-equiv"], "content-type"):
				label = headerCharset(attrs["content"])
			}
		}
	}
	if strings.HasPrefix(strings.ToLower(label), "utf-16") {
		label = "utf-8" // readable as ASCII, so not UTF-16
	}
	return label
}

var xmlEncoding = regexp.MustCompile(`(?is)^<\?xml\s[^>]*encoding\s*=\s*["']([a-z0-9_:.-]+)`)

func lookup(label string) (encoding.Encoding, string) {
	enc, name := charset.Lookup(label)
	switch name {
	case "replacement":
		return nil, ""
	case "gbk":
		enc = simplifiedchinese.GB18030 // a superset of GBK, which the standard prescribes
	}
	return enc, name
}

func decodeWith(enc encoding.Encoding, body []byte) []byte {
	out, err := enc.NewDecoder().Bytes(body)
	if err != nil {
		return validUTF8(body)
	}
	return out
}

func validUTF8(body []byte) []byte { return bytes.ToValidUTF8(body, []byte("\uFFFD")) }

// utf8Surplus returns the number of valid multi-byte sequences in body minus the number of invalid bytes. An incomplete sequence at
// the end does not count.
func utf8Surplus(body []byte) int {
	n := 0
	for i := 0; i < len(body); {
		if body[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(body[i:])
		switch {
		case r != utf8.RuneError || size > 1:
			n++
		case len(body)-i < utf8.UTFMax && !utf8.FullRune(body[i:]):
			return n
		default:
			n--
		}
		i += size
	}
	return n
}
