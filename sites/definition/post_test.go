package definition

import (
	"slices"
	"strings"
	"testing"

	"muster/internal/testutil"
)

func TestStartByPost(t *testing.T) {
	t.Parallel()
	def, err := Parse("s.yaml", []byte(`site: shop.example
base_url: https://shop.example
start:
  - {url: /search, form: {q: a & b, page: 1}}
  - {url: /empty, method: post}
  - {url: /api, json: {q: "<lamp>", paging: {page: 1}, tags: [a, 2, 1.5, true, null]}, as: detail}
  - {url: /text, json: '[1, 2]', as: detail}
  - {template: /years, json: {year: "{n}", title: "of {n}"}, from: 7, to: 8, as: detail}
records:
  product: {fields: {name: h1}}
`))
	testutil.Ok(t, err)
	var got []StartPage
	for _, p := range def.StartPages() {
		p.URL = p.URL[len("https://shop.example"):]
		got = append(got, p)
	}
	want := []StartPage{
		{"/search", KindListing, Post{formType, "page=1&q=a+%26+b"}, 1},
		{"/empty", KindListing, Post{formType, ""}, 2},
		{"/api", KindDetail, Post{jsonType, `{"paging":{"page":1},"q":"<lamp>","tags":["a",2,1.5,true,null]}`}, 3},
		{"/text", KindDetail, Post{jsonType, `[1, 2]`}, 4},
		{"/years", KindDetail, Post{jsonType, `{"title":"of 7","year":7}`}, 5},
		{"/years", KindDetail, Post{jsonType, `{"title":"of 8","year":8}`}, 5},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPostWithAnotherParameter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		post Post
		name string
		want string // "": an error
	}{
		{Post{formType, "page=1&q=a"}, "page", "page=2&q=a"},
		{Post{formType, "q=a"}, "page", "page=2&q=a"},
		{Post{jsonType, `{"id":12345678901234567890,"page":1}`}, "page", `{"id":12345678901234567890,"page":2}`},
		{Post{jsonType, `{"paging":{"page":1,"size":9}}`}, "paging.page", `{"paging":{"page":2,"size":9}}`},
		{Post{jsonType, `{}`}, "paging.page", `{"paging":{"page":2}}`},
		{Post{jsonType, `{"paging":7}`}, "paging.page", ""},
		{Post{jsonType, `[1]`}, "page", ""},
	} {
		got, err := c.post.With(c.name, "2", 2)
		if got.Text != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s with %s: got %q, %v, want %q", c.post.Text, c.name, got.Text, err, c.want)
		}
	}
}

func TestProblemsOfPost(t *testing.T) {
	const start = "start: [/]"
	testProblems(t, []problemCase{
		{"both", start, "start: [{url: /, form: {a: b}, json: {}}]", `3:9: start: has form and json`},
		{"GET", start, "start: [{url: /, method: GET, form: {a: b}}]", `start.method: is GET, which has no body`},
		{"other method", start, "start: [{url: /, method: PUT}]", `start.method: "PUT" is unknown`},
		{"not JSON", start, "start: [{url: /, json: '{a'}]", `3:24: start[0].json: is not JSON`},
		{"sitemap", start, "start: [{sitemap: /, form: {a: b}}]", `a sitemap is fetched by GET`},
		{"secret", start, "start: [{url: /, form: {key: '${KEY}'}}]", `secrets are not allowed here`},
		{"secret in JSON", start, "start: [{url: /, json: {key: '${KEY}'}}]", `secrets are not allowed here`},
		{"render", start, "render: {url: 'http://127.0.0.1:1/'}\nstart: [{url: /, form: {a: b}}]", `a renderer fetches pages by GET; remove listing from render.kinds`},
		{"array for next", "start: [/]\nlisting:\n  next: li.next a", "start: [{url: /, json: [1]}]\nlisting:\n  next: {param: page}", `start.json: cannot take listing.next.param page: the JSON is not an object`},
	})
}

func TestProblemsOfLogin(t *testing.T) {
	const start = "start: [/]"
	testProblems(t, []problemCase{
		{"nothing", start, "start: [/]\nsession:\n  login: {}", `session.login.url: is missing`},
		{"no sign", start, "start: [/]\nsession:\n  login: {url: /l, fields: {a: b}}", `5:10: session.login.signed_in: is missing; set a selector`},
		{"no fields", start, "start: [/]\nsession:\n  login: {url: /l, signed_in: a}", `session.login.fields: is missing`},
		{"elsewhere", start, "start: [/]\nsession:\n  login: {url: 'http://b.example/', fields: {a: b}, signed_in: a}", `is outside the site's scope`},
		{"half a secret", start, "start: [/]\nsession:\n  login: {url: /l, fields: {a: '${B'}, signed_in: a}", `session.login.fields.a: has ${ without }`},
	})
}

// The secrets of a login are put in.
func TestLoginOfASession(t *testing.T) {
	t.Parallel()
	def, err := Parse("s.yaml", []byte(strings.Replace(good, "start: [/]", "start: [/]\nsession: {login: {url: /l, fields: {a: 'x${B}'}, signed_in: a}}", 1)))
	testutil.Ok(t, err)
	with := testutil.Must(def.WithSecrets(func(name string) (string, bool) { return "hush of " + name, true }))(t)
	if got := with.Session.Login.Fields["a"]; got != "xhush of B" {
		t.Errorf("got %q, want xhush of B", got)
	}
	if got := def.Session.Login.Fields["a"]; !def.Refers() || got != "x${B}" {
		t.Errorf("got %q, want the reference as it was", got)
	}
}
