package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"muster/orchestrator/api/client"
)

const (
	maxBody      = 1 << 20  // bytes of a request, where nothing else is said
	maxItemsBody = 16 << 20 // bytes of a request with items
	maxDepth     = 100      // levels of JSON
	maxValues    = 200_000  // keys and values of JSON
	bodyTime     = 30 * time.Second
)

// readsJSON returns a middleware that reads and checks the body of requests
// before huma does, so that each mistake has the path of its field. The body of a
// request that before rejects is not read; before may be nil.
func readsJSON(limit int64, before func(*http.Request) error) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		if ctx.Operation().RequestBody == nil {
			next(ctx)
			return
		}
		r, w := humago.Unwrap(ctx)
		if before != nil {
			if err := before(r); err != nil {
				writeProblem(w, problemOf(err, "path."))
				return
			}
		}
		data, p := readJSON(w, r, limit)
		if p != nil {
			writeProblem(w, p)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		next(ctx)
	}
}

// readJSON reads a body of JSON, and checks what huma does not.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *Problem) {
	ct := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); ct != "" && (err != nil || media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return nil, problem(http.StatusUnsupportedMediaType, "the body must be application/json, not %.100q", ct)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // a recorder has none
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, bodyTooLarge(limit)
	}
	if err != nil {
		return nil, badField("body", "it ended early: %v", err)
	}
	if len(data) == 0 {
		return nil, nil
	}
	if ct == "" { // a web page may send such a body without a preflight
		return nil, problem(http.StatusUnsupportedMediaType, "the body has no Content-Type; set it to application/json")
	}
	return data, checkJSON(data, "body")
}

// checkJSON rejects invalid JSON, and JSON that is nested too deeply, has too many
// values, repeats a key of an object, or has strings with NUL or invalid UTF-8.
func checkJSON(data []byte, root string) *Problem {
	if !json.Valid(data) {
		var v json.RawMessage
		err := json.Unmarshal(data, &v)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return badField(root, "no JSON: %v, at byte %d", syntax, syntax.Offset)
		}
		return badField(root, "no JSON: %v", err)
	}
	walk := jsonWalk{data: data, root: root}
	if why := walk.run(); why != "" {
		return badField(walk.location(), "%s", why)
	}
	return nil
}

// jsonWalk walks through valid JSON.
type jsonWalk struct {
	data  []byte
	root  string
	stack []jsonLevel
	n     int // keys and values so far
}

// jsonLevel is an open object or array.
type jsonLevel struct {
	array bool
	index int             // of an array
	key   string          // of an object, the last one
	value bool            // of an object: the value comes, not the key
	keys  map[string]bool // of an object, so far
}

// location is where the walk is.
func (j *jsonWalk) location() string {
	var b strings.Builder
	b.WriteString(j.root)
	for _, l := range j.stack {
		if l.array {
			fmt.Fprintf(&b, "[%d]", l.index)
		} else if l.key != "" {
			b.WriteString("." + l.key)
		}
		if b.Len() > 1000 {
			break
		}
	}
	return b.String()
}

// run returns what is wrong first, or "".
func (j *jsonWalk) run() string {
	for i := 0; i < len(j.data); {
		var top *jsonLevel
		if len(j.stack) > 0 {
			top = &j.stack[len(j.stack)-1]
		}
		if j.n > maxValues {
			return fmt.Sprintf("it has more than %d keys and values", maxValues)
		}
		switch c := j.data[i]; c {
		case '{', '[':
			if len(j.stack) == maxDepth {
				return fmt.Sprintf("it is nested more than %d levels deep", maxDepth)
			}
			j.n++
			j.stack = append(j.stack, jsonLevel{array: c == '['})
		case '}', ']':
			j.stack = j.stack[:len(j.stack)-1]
		case ',':
			j.n++
			top.index++
			top.value = false
		case ':':
			j.n++
			top.value = true
		case '"':
			n := stringEnd(j.data[i:])
			text := j.data[i+1 : i+n-1]
			isKey := top != nil && !top.array && !top.value
			if isKey {
				top.key = ""
			}
			if why := checkText(text); why != "" {
				return why
			}
			if isKey {
				top.key = keyOf(text)
				if why := top.add(j.data[i : i+n]); why != "" {
					return why
				}
			}
			i += n
			continue
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			n := 1
			for i+n < len(j.data) && strings.IndexByte("0123456789+-.eE", j.data[i+n]) >= 0 {
				n++
			}
			if _, err := strconv.ParseFloat(string(j.data[i:i+n]), 64); err != nil {
				return "the number is out of range"
			}
			i += n
			continue
		}
		i++
	}
	return ""
}

// add adds a key, as a string literal, and returns why it cannot be there, or "".
func (l *jsonLevel) add(literal []byte) string {
	var key string
	if err := json.Unmarshal(literal, &key); err != nil {
		return err.Error()
	}
	if l.keys[key] {
		return "the object has this key twice"
	}
	if l.keys == nil {
		l.keys = map[string]bool{}
	}
	l.keys[key] = true
	return ""
}

// keyOf is a key in a location, without what would be long.
func keyOf(raw []byte) string {
	if len(raw) > 100 {
		return string(bytes.ToValidUTF8(raw[:100], nil)) + "…"
	}
	return string(raw)
}

// stringEnd is the length of the string literal that data begins with.
func stringEnd(data []byte) int {
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// checkText returns why a text, with the escapes of JSON, cannot be kept, or "".
func checkText(raw []byte) string {
	if !utf8.Valid(raw) {
		return "the text is not valid UTF-8"
	}
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		r := escaped(raw[i-1:])
		switch {
		case r == 0:
			return "the text has a NUL character"
		case utf16.IsSurrogate(r):
			if utf16.DecodeRune(r, escaped(raw[min(i+5, len(raw)):])) == utf8.RuneError {
				return "the text has half of a surrogate pair, which is no character"
			}
			i += 6
		}
		i += 4
	}
	return ""
}

// escaped is the character of an escape like \u00e4 at the start of raw, or -1.
func escaped(raw []byte) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// plainText returns why a text of a query, path or form cannot be kept, or "".
func plainText(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "the text is not valid UTF-8"
	case strings.ContainsRune(text, 0):
		return "the text has a NUL character"
	}
	return ""
}

// Object is a JSON object as it was sent.
type Object = client.Object
