package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"golang.org/x/net/html/charset"

	"muster/internal/contentencoding"
	"muster/sites/definition"
)

// Sitemap extracts the links from a sitemap (sitemaps.org): XML, an index of other sitemaps, or text with one URL per line; any
// of them may be compressed with gzip. An XML error after the first entry ends the sitemap. URLs that are outside the site or not
// allowed by the definition are dropped.
func Sitemap(def *definition.Definition, p Page) (Result, error) {
	body := p.Body
	for times := 0; times < 2 && bytes.HasPrefix(body, []byte{0x1f, 0x8b}); times++ {
		unpacked, err := gunzip(body, int64(def.Limits.MaxBytes))
		if err != nil {
			return Result{}, err
		}
		body = unpacked
	}
	s := &sitemap{def: def, base: p.URL, start: p.Start, seen: map[string]bool{}}
	text := bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
	if !bytes.HasPrefix(text, []byte("<")) {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "http") {
				s.add(line, definition.KindDetail)
			}
		}
		return Result{Links: s.links}, nil
	}
	if err := s.read(bytes.NewReader(body)); err != nil && s.entries == 0 {
		return Result{}, fmt.Errorf("read sitemap: %w", err)
	}
	return Result{Links: s.links}, nil
}

func gunzip(body []byte, limit int64) ([]byte, error) {
	z, err := contentencoding.NewReader("gzip", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("decompress sitemap: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, fmt.Errorf("decompress sitemap: %w", err)
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("decompressed sitemap exceeds limits.max_bytes (%d)", limit)
	}
	return out, nil
}

type sitemap struct {
	def     *definition.Definition
	base    *url.URL
	start   int
	seen    map[string]bool
	links   []Link
	entries int
}

func (s *sitemap) add(ref, kind string) {
	s.entries++
	u, err := s.base.Parse(strings.TrimSpace(ref))
	if err != nil {
		return
	}
	if u = s.def.Move(u); !s.def.InScope(u) || (kind == definition.KindDetail && !s.def.InSitemap(s.start, u)) || s.seen[u.String()] {
		return
	}
	s.seen[u.String()] = true
	s.links = append(s.links, Link{URL: u.String(), Kind: kind, Start: s.start})
}

// read parses the XML. The element that contains a loc determines whether it is a page or a sitemap.
func (s *sitemap) read(r io.Reader) error {
	dec := xml.NewDecoder(r)
	dec.Strict = false
	dec.CharsetReader = charset.NewReaderLabel
	var path []string
	known := false
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			if !known {
				return errors.New("neither urlset nor sitemapindex found")
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case xml.StartElement:
			name := strings.ToLower(t.Name.Local)
			known = known || name == "urlset" || name == "sitemapindex"
			if path = append(path, name); len(path) > 32 {
				return errors.New("nested too deeply")
			}
		case xml.EndElement:
			if len(path) > 0 {
				path = path[:len(path)-1]
			}
		case xml.CharData:
			if n := len(path); n >= 2 && path[n-1] == "loc" && len(bytes.TrimSpace(t)) > 0 {
				switch path[n-2] {
				case "url":
					s.add(string(t), definition.KindDetail)
				case "sitemap":
					s.add(string(t), definition.KindSitemap)
				}
			}
		}
	}
}
