package demo

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/sites/definition"
	"muster/sites/extract"
)

// TestDefinitionsExtractTheTruth crawls each site without faults by its definition and compares the records with the truth.
func TestDefinitionsExtractTheTruth(t *testing.T) {
	t.Parallel()
	for _, s := range []*Site{newShop(), newNews()} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Calm()
			def := testutil.Must(definition.Load(filepath.Join("definitions", s.Name+".yaml")))(t)

			var out bytes.Buffer
			written, visited := map[string]bool{}, map[string]bool{}
			kinds := map[string]int{}
			var todo []extract.Link
			for _, p := range def.StartPages() {
				todo = append(todo, extract.Link{URL: p.URL, Kind: p.Kind})
			}
			for len(todo) > 0 {
				link := todo[0]
				todo = todo[1:]
				if visited[link.URL] {
					continue
				}
				visited[link.URL] = true
				kinds[link.Kind]++
				res := extractPage(t, s, def, link)
				for _, r := range res.Invalid {
					t.Errorf("%s: record is not valid: %v", link.URL, r.Problems)
				}
				for _, r := range res.Records {
					if written[r.Type+r.Key] {
						continue // the pick of the week is on several pages
					}
					written[r.Type+r.Key] = true
					line := testutil.Must(r.JSON())(t)
					out.Write(append(line, '\n'))
				}
				for _, l := range res.Links {
					if l.Kind == "" {
						l.Kind = definition.KindDetail
					}
					todo = append(todo, l)
				}
				if res.Next != nil {
					todo = append(todo, *res.Next)
				}
			}
			if err := s.Check(&out); err != nil {
				t.Error(err)
			}
			if kinds[definition.KindListing] < 5 {
				t.Errorf("%d listing pages, want at least 5", kinds[definition.KindListing])
			}
			if s.Name == "shop" && kinds[definition.KindDetail] < 100 {
				t.Errorf("%d product pages, want at least 100", kinds[definition.KindDetail])
			}
		})
	}
}

// TestFaultPagesAreNotAccepted checks that a challenge and an empty page are not accepted as pages of the site.
func TestFaultPagesAreNotAccepted(t *testing.T) {
	t.Parallel()
	for _, s := range []*Site{newShop(), newNews()} {
		def := testutil.Must(definition.Load(filepath.Join("definitions", s.Name+".yaml")))(t)
		for _, body := range [][]byte{challengePage, nil} {
			for _, kind := range []string{definition.KindListing, definition.KindDetail} {
				d := testutil.Must(extract.Parse(def, page200(t, s, "/", kind, htmlUTF8, body)))(t)
				if extract.MustHave(def, d) {
					t.Errorf("%s: a %s page with %q is accepted", s.Name, kind, body)
				}
			}
		}
	}
}

// TestCheckReportsDifferences damages a complete set of records in each way that a scrape can.
func TestCheckReportsDifferences(t *testing.T) {
	t.Parallel()
	s := newShop()
	var lines []string
	for _, r := range s.Truth() {
		raw := testutil.Must(json.Marshal(r))(t)
		lines = append(lines, string(raw))
	}
	check := func(lines ...string) error { return s.Check(strings.NewReader(strings.Join(lines, "\n"))) }

	if err := check(lines...); err != nil {
		t.Errorf("unmodified truth: %v", err)
	}
	for _, c := range []struct {
		name, want string
		lines      []string
	}{
		{"missing", "missing: {", lines[1:]},
		{"twice", "or not twice: {", append([]string{lines[0]}, lines...)},
		{"unknown", "no such record", append([]string{`{"_type":"product","sku":"XX-1"}`}, lines...)},
		{"differs", `"stock":99`, append([]string{strings.Replace(lines[0], `"stock":0`, `"stock":99`, 1)}, lines[1:]...)},
		{"extra field", `"colour":"red"`, append([]string{strings.Replace(lines[0], `{`, `{"colour":"red",`, 1)}, lines[1:]...)},
		{"torn", "invalid record", append([]string{lines[0][:20]}, lines...)},
		{"nothing", "and 110 more", nil},
	} {
		err := check(c.lines...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

func extractPage(t *testing.T, s *Site, def *definition.Definition, link extract.Link) extract.Result {
	t.Helper()
	u := testutil.Must(url.Parse(link.URL))(t)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, link.URL, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: status %d", link.URL, w.Code)
	}
	body := testutil.Must(io.ReadAll(w.Body))(t)
	d, err := extract.Parse(def, page200(t, s, u.RequestURI(), link.Kind, w.Header().Get("Content-Type"), body))
	if err != nil {
		t.Fatalf("%s: %v", link.URL, err)
	}
	if !extract.MustHave(def, d) {
		t.Errorf("%s lacks the required elements of a %s page", link.URL, link.Kind)
	}
	res, err := extract.Run(def, d)
	if err != nil {
		t.Fatalf("%s: %v", link.URL, err)
	}
	return res
}

func page200(t *testing.T, s *Site, uri, kind, contentType string, body []byte) extract.Page {
	t.Helper()
	u := testutil.Must(url.Parse("http://" + s.Host + uri))(t)
	return extract.Page{
		URL: u, Requested: u.String(), Kind: kind, Status: http.StatusOK,
		Header: http.Header{"Content-Type": {contentType}}, Body: body, FetchedAt: time.Unix(0, 0),
	}
}
