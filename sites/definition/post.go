package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"muster/internal/yamlstrict"
	"muster/sites/internal/lines"
)

// Post is the body of a page that is fetched by POST. The zero Post means GET.
type Post struct {
	Type string `json:"type"` // of the content
	Text string `json:"text"`
}

// Content types of a Post.
const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// maxPost is the maximum size of a POST body, in bytes.
const maxPost = 64 << 10

// IsZero reports whether the page is fetched by GET.
func (p Post) IsZero() bool { return p == Post{} }

// With returns the body with another value of a parameter: a form field, set to text, or a JSON key such as page or paging.page,
// set to value.
func (p Post) With(name, text string, value any) (Post, error) {
	if p.Type != jsonType {
		form, err := url.ParseQuery(p.Text)
		if err != nil {
			return Post{}, fmt.Errorf("parse form: %w", err)
		}
		form.Set(name, text)
		p.Text = form.Encode()
		return p, nil
	}
	dec := json.NewDecoder(strings.NewReader(p.Text))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil || root == nil {
		return Post{}, errors.New("the JSON is not an object")
	}
	at := root
	names := strings.Split(name, ".")
	for _, n := range names[:len(names)-1] {
		if at[n] == nil {
			at[n] = map[string]any{}
		}
		next, ok := at[n].(map[string]any)
		if !ok {
			return Post{}, fmt.Errorf("%s in the JSON is not an object", n)
		}
		at = next
	}
	at[names[len(names)-1]] = value
	body, err := lines.JSON(root)
	p.Text = string(body)
	return p, err
}

// FormPost returns a form body.
func FormPost(values url.Values) Post { return Post{formType, values.Encode()} }

// post returns the body of start page n, or the zero Post.
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

// hasNumber reports whether the URL or the body of a start contains {n}.
func (s *Start) hasNumber() bool {
	return strings.Contains(fmt.Sprint(s.Template, s.Form, s.JSON), "{n}")
}

// checkPost checks the method and the body of a start page.
func (s *Start) checkPost(c *checker, def *Definition) {
	if s.Method != "" {
		s.Method = c.oneOf(strings.ToUpper(s.Method), "", words[Start]("method"), s.At, "start.method")
	}
	post := s.post(s.From)
	switch {
	case s.Form != nil && s.JSON != "":
		c.problemAt(s.At, "start", "has form and json; give only one of them")
	case s.Method == "GET" && !post.IsZero():
		c.problemAt(s.At, "start.method", "is GET, which has no body; move the parameters to the URL, or remove method")
	case post.IsZero():
		return
	case s.Sitemap != "":
		c.problemAt(s.At, "start", "a sitemap is fetched by GET; remove method, form and json")
	case strings.Contains(post.Text, "${") || strings.Contains(post.Text, "%24%7B"):
		c.problemAt(s.At, "start", "has ${…}: jobs store the requests of pages, so secrets are not allowed here; use them in headers, cookies and session.login")
	case len(post.Text) > maxPost:
		c.problemAt(s.At, "start", "has a body of more than %d bytes", maxPost)
	case def.Render.When == RenderAlways && slices.Contains(def.Render.Kinds, s.As):
		c.problemAt(s.At, "start", "a renderer fetches pages by GET; remove %s from render.kinds", s.As)
	}
	if next := def.Listing.Next; next != nil && next.Param != "" && s.As == KindListing {
		if _, err := post.With(next.Param, "1", 1); err != nil {
			c.problemAt(s.At, "start.json", "cannot take listing.next.param %s: %s", next.Param, err)
		}
	}
}

// JSONText is a JSON value, written as YAML or as a string of JSON.
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
	var v any
	err := yaml.NodeToValue(n, &v)
	if err == nil {
		var body []byte
		body, err = lines.JSON(v)
		*j = JSONText(body)
	}
	if err != nil {
		d.Fail(n, key, "is not JSON: %s", err)
	}
}
