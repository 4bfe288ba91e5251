package extract

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/internal/contentencoding"
	"muster/sites/definition"
)

// Sitemap extracts the links from a sitemap (sitemaps.org): XML, an index of other sitemaps, or text with one URL per line; any
// of them may be compressed with gzip. An XML error after the first entry ends the sitemap: Result.Broken has the error. URLs that
// are outside the site are counted in Result.Outside; those that the definition does not allow are dropped.
func Sitemap(def *definition.Definition, p Page) (Result, error) {
	body := p.Body
	for times := 0; times < 2 && bytes.HasPrefix(body, []byte{0x1f, 0x8b}); times++ {
		unpacked, err := contentencoding.Gunzip(body, int64(def.Limits.MaxBytes))
		if errors.Is(err, contentencoding.ErrTooLarge) {
			err = fmt.Errorf("it exceeds limits.max_bytes (%d)", def.Limits.MaxBytes)
		}
		if err != nil {
			return Result{}, fmt.Errorf("decompress sitemap: %w", err)
		}
		body = unpacked
	}
	s := &sitemap{def: def, start: p.Start, seen: map[string]bool{}, doc: &Doc{Page: p, base: p.URL}}
	body, s.doc.Charset = Decode(body, p.Header.Get("Content-Type"), def)
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\uFEFF")))
	read := s.readText
	if bytes.HasPrefix(body, []byte("<")) {
		read = s.readXML
	}
	err := read(body)
	switch {
	case err != nil && s.entries == 0:
		return Result{}, fmt.Errorf("read sitemap: %w", err)
	case err != nil:
		s.res.Broken = fmt.Sprintf("the sitemap ends after %d entries: %v", s.entries, err)
	}
	return s.res, nil
}

type sitemap struct {
	def     *definition.Definition
	doc     *Doc
	start   int
	seen    map[string]bool
	res     Result
	entries int
	added   bool // the last loc is the last link
}

func (s *sitemap) add(ref, kind string) {
	s.entries++
	s.added = false
	u, err := s.doc.reference(ref)
	if err != nil {
		return
	}
	u = s.def.Move(u)
	u.Fragment, u.RawFragment = "", ""
	switch text := u.String(); {
	case s.seen[text]:
		return
	case !s.def.InScope(u):
		s.res.Outside++
	case kind == definition.KindSitemap || s.def.InSitemap(s.start, u):
		l := Link{URL: text, Kind: kind}
		if kind == definition.KindSitemap {
			l.Start = s.start
		}
		s.res.Links = append(s.res.Links, l)
		s.added = true
	}
	s.seen[u.String()] = true
}

// lastModified returns the latest time that a lastmod may mean, in any time zone if it is a date, or the zero time if it is invalid.
func lastModified(text string) time.Time {
	for layout, precision := range map[string]time.Duration{
		time.RFC3339: clockSkew, "2006-01-02T15:04Z07:00": time.Minute + clockSkew, time.DateOnly: 36 * time.Hour,
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.Add(precision)
		}
	}
	return time.Time{}
}

// clockSkew is the difference between the clocks of a site and of this machine that lastModified allows.
const clockSkew = 10 * time.Minute

// readText reads a text sitemap. Lines that are not URLs are comments.
func (s *sitemap) readText(body []byte) error {
	for line := range strings.FieldsFuncSeq(string(body), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "http") || strings.HasPrefix(line, "/") {
			s.add(line, definition.KindDetail)
		}
	}
	if s.entries == 0 {
		return errors.New("neither XML nor text with URLs")
	}
	return nil
}

// readXML reads an XML sitemap. The element that contains a loc determines whether it is a page or a sitemap.
func (s *sitemap) readXML(body []byte) error {
	dec := xml.NewDecoder(bytes.NewReader(body))
	dec.Strict = false
	dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // decoded
	var path []string
	var loc strings.Builder
	known := false
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			switch {
			case !known:
				return errors.New("neither urlset nor sitemapindex found")
			case len(path) > 0:
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case xml.StartElement:
			name := strings.ToLower(t.Name.Local)
			s.added = s.added && name != "url"
			known = known || name == "urlset" || name == "sitemapindex"
			if path = append(path, name); len(path) > 32 {
				return errors.New("nested too deeply")
			}
			loc.Reset()
		case xml.EndElement:
			if n := len(path); n >= 2 && path[n-1] == "loc" && strings.TrimSpace(loc.String()) != "" {
				switch path[n-2] {
				case "url":
					s.add(loc.String(), definition.KindDetail)
				case "sitemap":
					s.add(loc.String(), definition.KindSitemap)
				}
			} else if n >= 2 && path[n-1] == "lastmod" && path[n-2] == "url" && s.added {
				s.res.Links[len(s.res.Links)-1].Modified = lastModified(strings.TrimSpace(loc.String()))
				s.added = false
			}
			path = path[:max(len(path)-1, 0)]
			loc.Reset()
		case xml.CharData:
			loc.Write(t)
		}
	}
}
