package definition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
)

// Post is the body of a page that is fetched by POST. The zero Post means that it is fetched by GET.
type Post struct {
	Type string `json:"type"` // of the content
	Text string `json:"text"`
}

// The types of a Post.
const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// maxPost bounds the body of a POST, in bytes.
const maxPost = 64 << 10

// IsZero reports whether the page is fetched by GET.
func (p Post) IsZero() bool { return p == Post{} }

// With returns the body with another value of a parameter: a field of a form, or in JSON a key such as page or
// paging.page. Text is the value in a form, and value that in JSON.
func (p Post) With(name, text string, value any) (Post, error) {
	if p.Type != jsonType {
		form, err := url.ParseQuery(p.Text)
		if err != nil {
			return Post{}, fmt.Errorf("read the form: %w", err)
		}
		form.Set(name, text)
		p.Text = form.Encode()
		return p, nil
	}
	dec := json.NewDecoder(strings.NewReader(p.Text))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil || root == nil {
		return Post{}, errors.New("the JSON is no object")
	}
	at := root
	names := strings.Split(name, ".")
	for _, n := range names[:len(names)-1] {
		if at[n] == nil {
			at[n] = map[string]any{}
		}
		next, ok := at[n].(map[string]any)
		if !ok {
			return Post{}, fmt.Errorf("%s of the JSON is no object", n)
		}
		at = next
	}
	at[names[len(names)-1]] = value
	p.Text = string(encodeJSON(root))
	return p, nil
}

// FormPost returns the body of a form.
func FormPost(values url.Values) Post { return Post{formType, values.Encode()} }

// post returns the body of the page of a start with a number, or the zero Post.
func (s *Start) post(n int) Post {
	number := strconv.Itoa(n)
	switch {
	case s.JSON != "":
		text := strings.ReplaceAll(string(s.JSON), `"{n}"`, number)
		return Post{jsonType, strings.ReplaceAll(text, "{n}", number)}
	case s.Form != nil || strings.EqualFold(s.Method, "POST"):
		form := url.Values{}
		for name, value := range s.Form {
			form.Set(name, fill(value, n))
		}
		return FormPost(form)
	}
	return Post{}
}

// hasNumber reports whether the URL or the body of a start has {n}.
func (s *Start) hasNumber() bool {
	for _, value := range s.Form {
		if strings.Contains(value, "{n}") {
			return true
		}
	}
	return strings.Contains(s.Template, "{n}") || strings.Contains(string(s.JSON), "{n}")
}

// checkPost checks how a start page is fetched.
func (s *Start) checkPost(c *checker, def *Definition) {
	if s.Method != "" {
		s.Method = c.oneOf(strings.ToUpper(s.Method), "", words[Start]("method"), s.At, "start.method")
	}
	post := s.post(s.From)
	switch {
	case s.Form != nil && s.JSON != "":
		c.problemAt(s.At, "start", "has form and json; give only one of them")
	case s.Method == "GET" && !post.IsZero():
		c.problemAt(s.At, "start.method", "is GET, which has no body; write the parameters into the URL, or take method out")
	case post.IsZero():
		return
	case s.Sitemap != "":
		c.problemAt(s.At, "start", "a sitemap is fetched by GET; take out method, form and json")
	case strings.Contains(post.Text, "${") || strings.Contains(post.Text, "%24%7B"):
		c.problemAt(s.At, "start", "has ${…}: what a page is requested with is stored with the job, so it must have no secrets; those are for headers, cookies and session.login")
	case len(post.Text) > maxPost:
		c.problemAt(s.At, "start", "has a body of more than %d bytes", maxPost)
	case def.Render.URL != "" && (len(def.Render.Kinds) == 0 || slices.Contains(def.Render.Kinds, s.As)):
		c.problemAt(s.At, "start", "a renderer fetches pages by GET; leave %s pages out of render.kinds", s.As)
	}
	if next := def.Listing.Next; next != nil && next.Param != "" && s.As == KindListing {
		if _, err := post.With(next.Param, "1", 1); err != nil {
			c.problemAt(s.At, "start.json", "cannot take listing.next.param %s: %s", next.Param, err)
		}
	}
}

// JSONText is a JSON value, written in YAML or as a text that is JSON.
type JSONText string

func (j *JSONText) decodeNode(d *yamlstrict.Decoder, n ast.Node, key string) {
	if d.IsScalar(n) {
		text, _ := d.Scalar(n, key, "JSON")
		if !json.Valid([]byte(text)) {
			d.Fail(n, key, "is not JSON; write it in YAML, or in quotes as in '{\"page\": 1}'")
			return
		}
		*j = JSONText(text)
		return
	}
	before := len(d.Problems)
	if v := valueOf(d, n, key, 0); len(d.Problems) == before {
		*j = JSONText(encodeJSON(v))
	}
}

// valueOf returns a YAML value as encoding/json decodes it.
func valueOf(d *yamlstrict.Decoder, n ast.Node, key string, depth int) any {
	if depth > yamlstrict.MaxDepth {
		d.Fail(n, key, "nested too deeply")
		return nil
	}
	switch m := d.Plain(n).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		pairs, _ := d.Mapping(n, key, "a mapping")
		object := map[string]any{}
		for _, p := range pairs {
			object[p.Key] = valueOf(d, p.Node, yamlstrict.Join(key, p.Key), depth+1)
		}
		return object
	case *ast.SequenceNode:
		list := []any{}
		for i, e := range m.Values {
			list = append(list, valueOf(d, e, fmt.Sprintf("%s[%d]", key, i), depth+1))
		}
		return list
	case *ast.BoolNode:
		return m.Value
	case *ast.IntegerNode, *ast.FloatNode:
		if text := m.GetToken().Value; json.Valid([]byte(text)) {
			return json.Number(text)
		}
		d.Fail(n, key, "%s is no number of JSON; write it in decimal digits, or in quotes", m.GetToken().Value)
		return nil
	case nil:
		return nil
	}
	text, _ := d.Scalar(n, key, "a value of JSON")
	return text
}

// encodeJSON encodes what valueOf returns, without escaping < > &.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // such values can be encoded
	return bytes.TrimSpace(b.Bytes())
}
