package definition

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/currency"

	"muster/internal/testutil"
)

func TestExampleLoads(t *testing.T) {
	t.Parallel()
	def := testutil.Must(Load("example.yaml"))(t)
	if got := len(def.StartPages()); got != 8 {
		t.Errorf("got %d start pages, want 8: %v", got, def.StartPages())
	}
	if got, want := def.StartPages()[2].URL, "https://shop.example/archive/2024"; got != want {
		t.Errorf("got third start page %q, want %q", got, want)
	}
	product := def.RecordsFrom(KindDetail)[0]
	var names []string
	for _, f := range product.Fields {
		names = append(names, f.Name)
	}
	if got, want := strings.Join(names[:4], " "), "title subtitle sku price"; got != want {
		t.Errorf("got fields %q first, want the order of the file, %q", got, want)
	}
	if f := product.Fields[3]; f.Type != TypePrice || f.Locale != "de" || len(f.Any) != 2 {
		t.Errorf("got price as %+v", f)
	}
	if got := def.Politeness.Delay; got != 2*time.Second {
		t.Errorf("got delay %s, want 2s", got)
	}
}

// The defaults in the example match the program.
func TestExampleHasTheRealDefaults(t *testing.T) {
	t.Parallel()
	def := testutil.Must(Load("example.yaml"))(t)
	bare := testutil.Must(Parse("bare.yaml", []byte("site: x\nbase_url: http://x.example\nstart: [/]\nrecords: {r: {fields: {t: h1}}}\n")))(t)
	for _, d := range []*Definition{def, bare} {
		d.Politeness.At, d.Limits.At, d.Retries.At, d.Proxy.At = Pos{}, Pos{}, Pos{}, Pos{}
	}
	for name, d := range map[string][2]any{
		"politeness": {def.Politeness, bare.Politeness}, "limits": {def.Limits, bare.Limits}, "retries": {def.Retries, bare.Retries}, "proxy": {def.Proxy, bare.Proxy},
	} {
		if d[0] != d[1] {
			t.Errorf("%s: got %+v in the example, want %+v", name, d[0], d[1])
		}
	}
}

func TestShippedLoad(t *testing.T) {
	t.Parallel()
	set := testutil.Must(Shipped())(t)
	if got, want := strings.Join(set.Names(), " "), "books.toscrape.com quotes.toscrape.com"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Parse("s.yaml", []byte("site: a b\nbase_url: x\nstart: []\nrecords: {r: {fields: {t: 'h1['}}}\n"))
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 4 {
		t.Errorf("got %d problems, want 4:\n%v", len(ps), err)
	}
}

func TestUnusableFilesAreErrors(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty":   "",
		"comment": "# nothing\n",
		"list":    "- a\n- b\n",
		"text":    "hello",
		"binary":  "\x00\x01\xff\xfe",
		"long":    strings.Repeat("#", maxFile+1),
		"loop":    "site: &a [*a]\n",
		"deep":    "site: " + strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
	} {
		if _, err := Parse("s.yaml", []byte(data)); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

// A file that is nested too deeply is rejected before it uses memory.
func TestNestedFileNamesThePlace(t *testing.T) {
	t.Parallel()
	_, err := Parse("s.yaml", []byte("site: x\nstart: "+strings.Repeat("[", 200_000)))
	if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:2:72: not valid YAML: lists and maps are nested more than 64 deep") {
		t.Errorf("got %v, want the place and the limit", err)
	}
}

func TestParseResolvesYAMLAliases(t *testing.T) {
	t.Parallel()
	def := testutil.Must(Parse("s.yaml", []byte(strings.Replace(good, "name: h1", "name: &n {css: h1, required: true}\n      again: *n", 1))))(t)
	if f := def.Records[0].Fields[1]; f.Name != "again" || !f.Required || f.Any[0].CSS.IsZero() {
		t.Errorf("got %+v, want the aliased field", f)
	}
}

func TestLoadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		testutil.Ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("b.yaml", good)
	write("a.yml", strings.Replace(good, "site: shop.example", "site: a.example", 1))
	write("notes.txt", "not a definition")
	set := NewSet()
	if err := LoadDir(set, dir); err != nil || len(set.Broken) > 0 || strings.Join(set.Names(), " ") != "a.example shop.example" {
		t.Fatalf("got %v, %v, %v", set.Names(), set.Broken, err)
	}
	if err := LoadDir(set, filepath.Join(dir, "none")); err == nil {
		t.Error("a missing folder: got no error, want one")
	}

	// An invalid file breaks only its own site.
	write("c.yaml", good)
	write("d.yaml", strings.Replace(good, "site: shop.example\n", "site: d.example\nstartt: [/]\n", 1))
	write("e.yaml", "site: e.example # tabs\n\tstart: [/]\n")
	write("f.yaml", "{}")
	testutil.Ok(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	testutil.Ok(t, os.Symlink("nowhere", filepath.Join(dir, "g.yaml")))
	write("h.yaml", strings.Replace(good, "site: shop.example", "site: h.example", 1))
	testutil.Ok(t, os.Chmod(filepath.Join(dir, "h.yaml"), 0o666))
	set = NewSet()
	if err := LoadDir(set, dir); err != nil || strings.Join(set.Names(), " ") != "a.example" {
		t.Errorf("got %v, error %v, want a.example alone", set.Names(), err)
	}
	want := map[string]string{ // by site, the error
		"shop.example": "c.yaml:1:1: " + dir + "/b.yaml has the site shop.example already",
		"d.example":    "d.yaml:2:1: unknown key \"startt\"",
		"e.example":    "e.yaml:",
		"f":            "f.yaml:",
		"g":            "g.yaml: cannot be read: no such file",
		"h":            "h.yaml: cannot be read: untrusted",
	}
	for _, b := range set.Broken {
		if text := want[b.Name]; text == "" || !strings.Contains(b.Error(), text) || filepath.Dir(b.File) != dir {
			t.Errorf("%s, file %s: got %q, want %q", b.Name, b.File, b, text)
		}
	}
	if len(set.Broken) != len(want) {
		t.Errorf("got %d broken sites, want %d", len(set.Broken), len(want))
	}
}

func TestWithBase(t *testing.T) {
	t.Parallel()
	def := testutil.Must(Parse("s.yaml", []byte(good)))(t)
	local := testutil.Must(def.WithBase("http://127.0.0.1:8001/copy"))(t)
	parse := func(s string) *url.URL {
		u := testutil.Must(url.Parse(s))(t)
		return u
	}
	if got, want := local.Move(parse("https://shop.example/a?b=c")).String(), "http://127.0.0.1:8001/copy/a?b=c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for u, want := range map[string]bool{"http://127.0.0.1:8001/x": true, "https://shop.example/": false, "mailto:a@shop.example": false} {
		if got := local.InScope(parse(u)); got != want {
			t.Errorf("in scope %s: got %v, want %v", u, got, want)
		}
	}
	if def.InScope(parse("http://127.0.0.1:8001/x")) || !def.InScope(parse("http://shop.example/x")) {
		t.Error("got a changed definition, want it unchanged")
	}
	for _, bad := range []string{"127.0.0.1:8001", "ftp://x", "::", "http://u:p@x"} {
		if _, err := def.WithBase(bad); err == nil {
			t.Errorf("base %q: got no error, want one", bad)
		}
	}
}

func TestScopeIncludesThePort(t *testing.T) {
	t.Parallel()
	for base, c := range map[string]struct {
		hosts   string
		in, out []string
	}{
		"https://shop.example": {"[b.example, 'c.example:8443', '*.d.example:81', 'e.example:443']",
			[]string{"https://shop.example/", "http://shop.example/", "https://shop.example:443/", "http://b.example/", "https://c.example:8443/", "http://x.d.example:81/", "http://e.example/"},
			[]string{"http://shop.example:8080/", "https://b.example:8443/", "https://c.example/", "http://x.d.example/", "http://shop.example:22/"}},
		"https://müller.example": {"['*.größe.example:81', 'xn--bcher-kva.example']",
			[]string{"https://xn--mller-kva.example/a", "https://MÜLLER.example/a", "https://müller.example./a", "http://a.xn--gre-6ka8i.example:81/", "http://größe.example:81/", "https://bücher.example/"},
			[]string{"https://muller.example/a", "https://müller.example:81/", "http://größe.example/"}},
		"http://127.0.0.1:8001": {"[]", []string{"http://127.0.0.1:8001/x"}, []string{"http://127.0.0.1:8002/x", "http://127.0.0.1/x", "https://127.0.0.1/x"}},
		"http://[::1]:8001":     {"[]", []string{"http://[::1]:8001/x"}, []string{"http://[::1]:8002/x"}},
	} {
		text := strings.Replace(good, "https://shop.example", base, 1) + "hosts: " + c.hosts + "\n"
		def, err := Parse("s.yaml", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", base, err)
			continue
		}
		for want, urls := range map[bool][]string{true: c.in, false: c.out} {
			for _, text := range urls {
				if u, _ := url.Parse(text); def.InScope(u) != want {
					t.Errorf("%s: %s is in scope: %v, want %v", base, text, !want, want)
				}
			}
		}
	}
	def, err := Parse("s.yaml", []byte(good))
	if err == nil {
		def, err = def.WithBase("http://127.0.0.1:8001")
	}
	testutil.Ok(t, err)
	for text, want := range map[string]bool{"http://127.0.0.1:8001/": true, "http://127.0.0.1:8002/": false, "https://shop.example/": false} {
		if u, _ := url.Parse(text); def.InScope(u) != want {
			t.Errorf("with another base: %s is in scope: %v, want %v", text, !want, want)
		}
	}
}

func TestScopeAllowsAndDeniesURLs(t *testing.T) {
	t.Parallel()
	_, err := Parse("s.yaml", []byte(good+"hosts: ['*.cdn.example']\nscope: {allow: ['/a/'], deny: ['sort=']}\n"))
	if err == nil {
		t.Fatal("a start page that is not allowed: got no error, want one")
	}
	def, err := Parse("s.yaml", []byte(strings.Replace(good, "start: [/]", "start: [/a/]", 1)+"hosts: ['*.cdn.example']\nscope: {allow: ['/a/'], deny: ['sort=']}\n"))
	testutil.Ok(t, err)
	for u, want := range map[string]bool{
		"https://shop.example/a/1":           true,
		"https://SHOP.example/a/1":           true,
		"https://x.cdn.example/a/1":          true,
		"https://cdn.example/a/":             true,
		"https://xcdn.example/a/":            false,
		"https://shop.example/b/1":           false,
		"https://shop.example/a/?sort=x":     false,
		"https://shop.example.evil.test/a/1": false,
	} {
		p, _ := url.Parse(u)
		if got := def.InScope(p); got != want {
			t.Errorf("in scope %s: got %v, want %v", u, got, want)
		}
	}
}

func TestSelectorAttr(t *testing.T) {
	t.Parallel()
	s, err := ParseSelector("a.x::attr(href)")
	if err != nil || s.Attr != "href" {
		t.Errorf("got %+v, %v", s, err)
	}
	testutil.Must(ParseSelector("a::text"))(t)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	example := testutil.Must(os.ReadFile("example.yaml"))(f)
	f.Add(example)
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := Parse("s.yaml", data)
		if (def == nil) == (err == nil) {
			t.Errorf("got %v and %v", def, err)
		}
	})
}

// A path selects values. Quoted names may contain any character, as in JSON.
func TestPathSelectsValues(t *testing.T) {
	t.Parallel()
	doc := map[string]any{
		"a": []any{map[string]any{"b": 1.0}, map[string]any{"b": 2.0}}, "c": map[string]any{"x y": "z"},
		"n": map[string]any{"br]k": 1, `q"t`: 2, "it's": 3, "b.c": 4, "": 5, `back\`: 6},
	}
	for path, want := range map[string]string{
		"a[*].b": "[1 2]", "$.a[0].b": "[1]", "a[-1].b": "[2]", "a[5].b": "[]", "a.b": "[1 2]", `c["x y"]`: "[z]", "c.*": "[z]", "q.r": "[]", "a[].b": "[1 2]",
		`n["br]k"]`: "[1]", `$.n['q"t']`: "[2]", `n["q\"t"]`: "[2]", `n['it\'s']`: "[3]", `n["it's"]`: "[3]", `n[ 'b.c' ]`: "[4]", `n[""]`: "[5]", `n["back\\"]`: "[6]",
	} {
		p := testutil.Must(ParsePath(path))(t)
		if got := p.Eval(doc); fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, want %s", path, got, want)
		}
	}
	if p, err := ParsePath("$"); err != nil || len(p.Eval(doc)) != 1 {
		t.Errorf("$: got %v, %v, want the document", p.Eval(doc), err)
	}
	for _, bad := range []string{"a[", "a..b", "a[x]", "a]b.", `a["b]`, `a['b"]`, `a["b"]c`} {
		if _, err := ParsePath(bad); err == nil {
			t.Errorf("%s: got no error, want one", bad)
		}
	}
}

func TestCanonicalNormalizesURLs(t *testing.T) {
	t.Parallel()
	def := &Definition{Scope: Scope{DropParams: []string{"sid", "ref_*"}}}
	for in, want := range map[string]string{
		"HTTP://Shop.Example:80":                       "http://shop.example/",
		"https://shop.example:443/a#top":               "https://shop.example/a",
		"https://shop.example:8443/a":                  "https://shop.example:8443/a",
		"http://shop.example/a/./b/../c":               "http://shop.example/a/c",
		"http://shop.example/a/..":                     "http://shop.example/",
		"http://shop.example/../../a":                  "http://shop.example/a",
		"http://shop.example/a/":                       "http://shop.example/a/",
		"http://shop.example/a//b":                     "http://shop.example/a//b",
		"http://shop.example/%7euser/%c3%a9%2f":        "http://shop.example/~user/%C3%A9%2F",
		"http://shop.example/é":                        "http://shop.example/%C3%A9",
		"http://shop.example/?b=2&a=1&b=1":             "http://shop.example/?a=1&b=2&b=1",
		"http://shop.example/?a=&b":                    "http://shop.example/?a=&b",
		"http://shop.example/?utm_source=x&id=1&SID=9": "http://shop.example/?id=1",
		"http://shop.example/?ref_from=x":              "http://shop.example/",
		"http://shop.example/?q=a+b":                   "http://shop.example/?q=a%20b",
		"http://shop.example/a;jsessionid=1F?x=1":      "http://shop.example/a?x=1",
		"http://bücher.example/":                       "http://xn--bcher-kva.example/",
		"http://shop.example./":                        "http://shop.example/",
		"http://u:p@shop.example/":                     "http://shop.example/",
		"http://[::1]:80/":                             "http://[::1]/",
	} {
		u := testutil.Must(url.Parse(in))(t)
		got := def.Canonical(u)
		if got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
		again := testutil.Must(url.Parse(got))(t)
		if twice := def.Canonical(again); twice != got {
			t.Errorf("canonical form of %s: got %s, want the same", got, twice)
		}
	}
}

func TestIsCurrency(t *testing.T) {
	t.Parallel()
	for _, code := range strings.Fields("EUR XOF KWD BTN DEM SLE VES") {
		if !IsCurrency(code) {
			t.Errorf("%s: got no currency, want one", code)
		}
	}
	for _, code := range strings.Fields("QQQ EURO EU $") {
		if IsCurrency(code) {
			t.Errorf("%s: got a currency, want none", code)
		}
	}
	if codes := Currencies(); len(codes) < 150 || !slices.Contains(codes, "XOF") || !slices.Contains(codes, "SLE") || slices.Contains(codes, "DEM") {
		t.Errorf("got %q, want the currencies in use", codes)
	}
	for _, code := range newCurrencies {
		if _, err := currency.ParseISO(code); err == nil {
			t.Errorf("%s: x/text has it, take it out of newCurrencies", code)
		}
	}
}

// The definitions in the README load.
func TestReadmeExamplesLoad(t *testing.T) {
	t.Parallel()
	readme := testutil.Must(os.ReadFile("../README.md"))(t)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) == 0 {
		t.Fatal("no YAML in README.md")
	}
	for _, b := range blocks {
		testutil.Must(Parse("README.md", b[1]))(t)
	}
	// The README's forms of next load.
	for _, m := range regexp.MustCompile("`(next: [^`]+)`").FindAllSubmatch(readme, -1) {
		text := "site: s\nbase_url: http://s.example\nstart: [/]\nlisting:\n  format: json\n  " + string(m[1]) + "\nrecords: {r: {from: listing, each_json: a, fields: {t: {json: b}}}}\n"
		testutil.Must(Parse("README.md", []byte(text)))(t)
	}
}
