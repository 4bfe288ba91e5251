package extract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// looseJSON decodes the JSON value at the beginning of a text. It also accepts JavaScript literals: unquoted names, other quotes,
// comments, line breaks in strings, extra commas, undefined.
func looseJSON(text string) (any, error) {
	text = strings.TrimSpace(text)
	v, err := decodeJSON(json.NewDecoder(strings.NewReader(text)))
	if err == nil {
		return v, nil
	}
	if strict, ok := jsLiteral(text); ok {
		if v, err := decodeJSON(json.NewDecoder(bytes.NewReader(strict))); err == nil {
			return v, nil
		}
	}
	return nil, err
}

func decodeJSON(dec *json.Decoder) (v any, err error) {
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// errTrailing is the error of a page with more text after its JSON value.
var errTrailing = errors.New("unexpected text after the value")

var (
	guards = regexp.MustCompile(`^(?:\)\]\}',?|while\s*\(1\)\s*;|for\s*\(;;\)\s*;|\{\}&&)\s*`)
	jsonp  = regexp.MustCompile(`^(?:/\*\*/)?\s*(?:typeof [\w.$]+ === 'function' && )?[\w.$]+\s*\(\s*`)
)

// PageJSON decodes a JSON page: one value, or one value per line, which become a list. It removes prefixes against script
// inclusion and the function call of JSONP.
func PageJSON(text []byte) (any, error) {
	text = bytes.TrimSpace(text)
	text = text[len(guards.Find(text)):]
	dec := json.NewDecoder(bytes.NewReader(text))
	v, err := decodeJSON(dec)
	if err != nil {
		head := jsonp.Find(text)
		if head == nil {
			return nil, err
		}
		inner := json.NewDecoder(bytes.NewReader(text[len(head):]))
		v, inErr := decodeJSON(inner)
		if inErr != nil || !endsCall(text[len(head)+int(inner.InputOffset()):]) {
			return nil, err
		}
		return v, nil
	}
	var list []any
	for list = []any{v}; ; list = append(list, v) {
		rest := text[dec.InputOffset():]
		after := bytes.TrimLeft(rest, " \t\r")
		if len(bytes.TrimSpace(after)) == 0 {
			break
		}
		if after[0] != '\n' {
			return nil, errTrailing
		}
		if v, err = decodeJSON(dec); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("the last line is truncated: %w", err)
			}
			return nil, errTrailing
		}
	}
	if len(list) == 1 {
		return v, nil
	}
	return list, nil
}

// endsCall reports whether a text is only the end of a function call.
func endsCall(text []byte) bool {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte(")"))
	rest = bytes.TrimSpace(rest)
	return ok && (len(rest) == 0 || string(rest) == ";")
}

// jsLiteral converts the JavaScript literal at the beginning of a text to JSON. It does not check the syntax: other text may
// result in invalid JSON.
func jsLiteral(text string) (out []byte, ok bool) {
	var b bytes.Buffer
	depth, comma := 0, false
	for i := 0; i < len(text); {
		n, ok := blankLen(text[i:])
		if !ok {
			return nil, false
		}
		if i += n; i == len(text) {
			break
		}
		c := text[i]
		if c == ',' {
			comma = true // written before the next value
			i++
			continue
		}
		if comma && c != ']' && c != '}' {
			b.WriteByte(',')
		}
		comma = false
		switch c {
		case '{', '[', '}', ']', ':':
			b.WriteByte(c)
			i++
			if c == '{' || c == '[' {
				depth++
			} else if c != ':' {
				depth--
			}
		case '"', '\'', '`':
			quoted, n, ok := jsString(text[i:])
			if !ok {
				return nil, false
			}
			b.Write(quoted)
			i += n
		default:
			n := wordLen(text[i:])
			if n == 0 || depth == 0 {
				return nil, false
			}
			b.WriteString(jsWord(text[i:i+n], text[i+n:]))
			i += n
		}
		if depth <= 0 {
			return b.Bytes(), b.Len() > 0
		}
	}
	return nil, false
}

// blankLen returns the length of the white space and comments at the beginning of s, and false for an unterminated comment.
func blankLen(s string) (int, bool) {
	for i := 0; ; {
		rest := strings.TrimLeft(s[i:], " \t\r\n")
		i = len(s) - len(rest)
		end, size := -1, 0
		switch {
		case strings.HasPrefix(rest, "//"), strings.HasPrefix(rest, "<!--"), strings.HasPrefix(rest, "-->"):
			end = strings.IndexByte(rest, '\n')
		case strings.HasPrefix(rest, "/*"):
			end, size = strings.Index(rest, "*/"), 2
		default:
			return i, true
		}
		if end < 0 {
			return 0, false
		}
		i += end + size
	}
}

// wordLen returns the length of the name or number at the beginning of s.
func wordLen(s string) int {
	for i, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_$.+-!", r) {
			return i
		}
	}
	return len(s)
}

// jsWord converts a word to JSON: a name before a colon becomes a string, an unknown word null.
func jsWord(word, after string) string {
	if strings.HasPrefix(strings.TrimLeft(after, " \t\r\n"), ":") {
		quoted, _ := json.Marshal(word)
		return string(quoted)
	}
	switch word {
	case "true", "!0":
		return "true"
	case "false", "!1":
		return "false"
	}
	digits := strings.TrimPrefix(word, "+")
	if n, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if f, err := strconv.ParseFloat(digits, 64); err == nil {
		if text, err := json.Marshal(f); err == nil { // neither infinite nor NaN
			return string(text)
		}
	}
	return "null"
}

// jsString converts the string literal at the beginning of text to JSON, and returns the length of the literal.
func jsString(text string) (quoted []byte, n int, ok bool) {
	quoted = []byte{'"'}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == text[0]:
			return append(quoted, '"'), i + 1, true
		case c == '"':
			quoted = append(quoted, '\\', '"')
		case c < ' ':
			quoted = fmt.Appendf(quoted, `\u%04x`, c)
		case c != '\\':
			quoted = append(quoted, c)
		case i+1 < len(text):
			i++
			switch e := text[i]; {
			case e == '\n': // the literal continues in the next line
			case e == 'x':
				quoted = append(quoted, `\u00`...)
			case strings.IndexByte(`"\/bfnrtu`, e) >= 0:
				quoted = append(quoted, '\\', e)
			default:
				quoted = append(quoted, e)
			}
		}
	}
	return nil, 0, false
}
