package extract

import (
	"bytes"
	"compress/gzip"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"muster/sites/definition"
)

func TestSitemap(t *testing.T) {
	t.Parallel()
	def := define(t, "limits: {max_bytes: 1MB}\nrecords: {r: {fields: {v: b}}}\n")
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(s))
		_ = z.Close()
		return b.String()
	}
	const urls = `<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://x/image"><url><loc> http://shop.example/a?x=1&amp;y=2 </loc><image:image><image:loc>http://shop.example/i.png</image:loc></image:image></url><url><loc>http://other.example/b</loc></url><url><loc>/c</loc></url><url><loc>http://shop.example/c</loc></url></urlset>`
	for name, c := range map[string]struct{ body, want string }{
		"urls":       {urls, "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c"},
		"gzip":       {zip(urls), "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c"},
		"gzip twice": {zip(zip(urls)) + "junk", "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c"},
		"index":      {`<sitemapindex><sitemap><loc>http://shop.example/s1.xml.gz</loc></sitemap></sitemapindex>`, "sitemap http://shop.example/s1.xml.gz"},
		"text":       {"http://shop.example/a\r\nhttp://shop.example/b\n# no\n", "detail http://shop.example/a, detail http://shop.example/b"},
		"cut":        {urls[:len(urls)-60], "detail http://shop.example/a?x=1&y=2, detail http://shop.example/c"},
		"other host": {"<urlset>" + strings.Repeat("<url><loc>http://other.example/x</loc></url>", 5_000) + "</urlset>", ""},
		"empty set":  {"<urlset></urlset>", ""},
	} {
		u, _ := url.Parse("http://shop.example/sitemap.xml")
		res, err := Sitemap(def, Page{URL: u, Body: []byte(c.body)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, l := range res.Links {
			got = append(got, l.Kind+" "+l.URL)
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s: got %s, want %s", name, g, c.want)
		}
	}
	two := define(t, "records: {r: {fields: {v: b}}}\n")
	two.Start = []definition.Start{{Sitemap: "/a.xml", Allow: definition.Pattern{Regexp: regexp.MustCompile("/a")}}, {Sitemap: "/b.xml"}}
	u, _ := url.Parse("http://shop.example/sitemap.xml")
	for start, want := range map[int]int{0: 2, 1: 1, 2: 2, 3: 2, -1: 2} {
		if res, err := Sitemap(two, Page{URL: u, Start: start, Body: []byte(urls)}); err != nil || len(res.Links) != want {
			t.Errorf("of start %d: got %d links, %v, want %d", start, len(res.Links), err, want)
		}
	}
	for name, body := range map[string]string{"HTML": "<html><body>no</body></html>", "broken gzip": "\x1f\x8b\x00", "bomb": zip(strings.Repeat(" ", 2<<20)), "deep": strings.Repeat("<a>", 1000)} {
		if res, err := Sitemap(def, Page{URL: u, Body: []byte(body)}); err == nil {
			t.Errorf("%s: got no error and %d links, want an error", name, len(res.Links))
		}
	}
}
