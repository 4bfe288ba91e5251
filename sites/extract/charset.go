package extract

import (
	"bytes"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/simplifiedchinese"
	xunicode "golang.org/x/text/encoding/unicode"
)

// Charset is how the charset of a page was decided.
type Charset struct {
	Name string // as in the WHATWG's encoding standard
	From string // bom, utf-8 body, definition, header, meta, guess
}

// certain is the number of multi-byte sequences in a body of valid UTF-8
// that no other charset brings about by chance, so that they outweigh what
// header, meta or definition say.
const certain = 8

// Decode turns a page's bytes into UTF-8. It goes by, in this order: the byte
// order mark; the body itself, when all of it is valid UTF-8 with characters
// beyond ASCII, and nothing else is declared or they are too many for chance;
// the definition; the Content-Type header; the meta element in the first
// 4 KiB; a guess from the letters. Bytes that are wrong in the charset become
// U+FFFD.
func Decode(body []byte, contentType, fromDefinition string) ([]byte, Charset) {
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return bytes.ToValidUTF8(body[3:], []byte("\uFFFD")), Charset{"utf-8", "bom"}
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		return decodeWith(xunicode.UTF16(xunicode.LittleEndian, xunicode.UseBOM), body), Charset{"utf-16le", "bom"}
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		return decodeWith(xunicode.UTF16(xunicode.BigEndian, xunicode.UseBOM), body), Charset{"utf-16be", "bom"}
	case bytes.HasPrefix(body, []byte("<\x00")):
		return decodeWith(xunicode.UTF16(xunicode.LittleEndian, xunicode.IgnoreBOM), body), Charset{"utf-16le", "guess"}
	case bytes.HasPrefix(body, []byte("\x00<")):
		return decodeWith(xunicode.UTF16(xunicode.BigEndian, xunicode.IgnoreBOM), body), Charset{"utf-16be", "guess"}
	}
	header := headerCharset(contentType)
	high := multiByte(body)
	if valid := high >= 0; valid && (high >= certain || (high > 0 && header == "" && fromDefinition == "")) {
		return body, Charset{"utf-8", "utf-8 body"}
	}
	for _, c := range []struct{ label, from string }{{fromDefinition, "definition"}, {header, "header"}, {metaCharset(body), "meta"}} {
		enc, name := lookup(c.label)
		if enc == nil {
			continue
		}
		if name == "utf-8" {
			if high < 0 && wrongUTF8(body) {
				continue // it says UTF-8 and is not
			}
			if utf8.Valid(body) {
				return body, Charset{name, c.from}
			}
			return bytes.ToValidUTF8(body, []byte("\uFFFD")), Charset{name, c.from}
		}
		return decodeWith(enc, body), Charset{name, c.from}
	}
	if bytes.Contains(body, []byte("\x1b$B")) || bytes.Contains(body, []byte("\x1b$@")) {
		enc, name := lookup("iso-2022-jp")
		return decodeWith(enc, body), Charset{name, "guess"}
	}
	if high >= 0 {
		return body, Charset{"utf-8", "guess"}
	}
	enc, name := lookup(guess(body))
	return decodeWith(enc, body), Charset{name, "guess"}
}

func headerCharset(contentType string) string {
	if _, params, err := mime.ParseMediaType(contentType); err == nil {
		return params["charset"]
	}
	// Broken headers are common: text/html; charset=utf-8; charset
	_, rest, ok := strings.Cut(strings.ToLower(contentType), "charset=")
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, ";")
	return strings.Trim(rest, ` "'`)
}

var (
	metaTag  = regexp.MustCompile(`(?is)<meta\s[^>]*>?`)
	metaName = regexp.MustCompile(`(?is)charset\s*=\s*["']?\s*([a-z0-9_:.-]+)`)
	// of another name, which may write of charsets in its content
	metaOther = regexp.MustCompile(`(?is)\s(name|property|itemprop)\s*=`)
	xmlDecl   = regexp.MustCompile(`(?is)^\s*<\?xml\s[^>]*encoding\s*=\s*["']([a-z0-9_:.-]+)`)
	comments  = regexp.MustCompile(`(?s)<!--.*?-->`)
)

func metaCharset(body []byte) string {
	head := comments.ReplaceAll(body[:min(len(body), 4096)], nil)
	m := xmlDecl.FindSubmatch(head)
	for _, tag := range metaTag.FindAll(head, -1) {
		if m == nil && !metaOther.Match(tag) {
			m = metaName.FindSubmatch(tag)
		}
	}
	if m == nil {
		return ""
	}
	label := strings.ToLower(string(m[1]))
	if strings.HasPrefix(label, "utf-16") {
		return "utf-8" // it was read as ASCII, so it is not UTF-16
	}
	return label
}

func lookup(label string) (encoding.Encoding, string) {
	if label == "" {
		return nil, ""
	}
	enc, err := htmlindex.Get(strings.TrimSpace(label))
	if err != nil {
		return nil, ""
	}
	name, err := htmlindex.Name(enc)
	if err != nil || name == "replacement" {
		return nil, ""
	}
	if name == "gbk" {
		enc = simplifiedchinese.GB18030 // which holds it, and is what the standard decodes it as
	}
	return enc, name
}

func decodeWith(enc encoding.Encoding, body []byte) []byte {
	out, err := enc.NewDecoder().Bytes(body)
	if err != nil {
		return bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	return out
}

// multiByte counts the characters beyond ASCII, or returns -1 when body is
// not valid UTF-8. A sequence that the end of the body cuts off is forgiven.
func multiByte(body []byte) int {
	n := 0
	for i := 0; i < len(body); {
		if body[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size == 1 {
			if len(body)-i < utf8.UTFMax && !utf8.FullRune(body[i:]) {
				return n
			}
			return -1
		}
		n++
		i += size
	}
	return n
}

// wrongUTF8 tells whether more than one in ten of the characters beyond ASCII
// is wrong: such a page is not UTF-8 with a few bad bytes.
func wrongUTF8(body []byte) bool {
	good, bad := 0, 0
	for i := 0; i < len(body); {
		if body[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size == 1 {
			bad++
		} else {
			good++
		}
		i += size
	}
	return bad*10 > good+bad
}
