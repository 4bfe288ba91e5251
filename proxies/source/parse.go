// Package source reads lists of proxies in many formats and returns candidates.
//
// [Parse] reads text, JSON, CSV and HTML tables, optionally compressed with gzip. [Fetcher] reads lists from files,
// URLs and standard input, and [Merge] merges them. Unusable entries are dropped and counted by [Reject]. A label in
// a list is only a hint: the probe determines the protocol.
package source

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"muster/internal/addressfilter"
	"muster/internal/contentencoding"
)

// Reject is the reason why an entry of a list was dropped.
type Reject string

// Reasons for dropping an entry.
const (
	BadAddress  Reject = "bad_address"  // resembles an endpoint, but its address is invalid
	BadPort     Reject = "bad_port"     // port 0 or above 65535
	Private     Reject = "private"      // a private, loopback, link-local or shared address
	Reserved    Reject = "reserved"     // a multicast, documentation, "this network" or otherwise reserved address
	SingleLabel Reject = "single_label" // a host name without a dot
	Duplicate   Reject = "duplicate"    // already in the list
	Capped      Reject = "capped"       // exceeds the maximum of the source
	Unparsed    Reject = "unparsed"     // a line of text without an endpoint
)

// Options configure Parse.
type Options struct {
	// Protocol is the label for entries without one. Defaults to none.
	Protocol string
	// AllowLocal accepts private and loopback addresses and single-label names. Defaults to false.
	AllowLocal bool
	// Max is the maximum number of candidates. Defaults to 100,000.
	Max int
	// MaxBytes is the maximum size of the list, before and after decompression. Defaults to DefaultMaxBytes.
	MaxBytes int64
	// Name is added to the Sources of each candidate. Defaults to none.
	Name string
}

const (
	defaultMax  = 100_000
	maxLine     = 4 << 10
	maxJSONDeep = 64
)

// Parsed is the content of a list.
type Parsed struct {
	Candidates []Candidate      `json:"candidates"`
	Rejects    map[Reject]int   `json:"rejects,omitempty"`
	Lines      map[Reject][]int `json:"-"`     // first rejected lines of a text, the last of maxLines stands for more
	HTML       bool             `json:"-"`     // the list is a web page
	Bytes      int64            `json:"bytes"` // read, before decompression
}

// Parse reads a list and detects its format. It returns an error of r, or an error if the list is larger than
// MaxBytes or cannot be decompressed. An empty list yields no candidates.
func Parse(r io.Reader, o Options) (Parsed, error) {
	p := newParser(o)
	body, err := p.readPlain(r, cmp.Or(o.MaxBytes, DefaultMaxBytes))
	start := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(start) > 0 && (start[0] == '{' || start[0] == '[') && p.json(start):
	case bytes.HasPrefix(start, []byte("<")):
		p.out.HTML = true
		p.text(pageText(body))
	default:
		p.text(string(body))
	}
	return p.out, err
}

// pageText returns the text of a web page: a line for each row of a table, with a blank for each other tag.
func pageText(body []byte) string {
	z := html.NewTokenizer(bytes.NewReader(body))
	z.SetMaxBuf(1 << 20)
	var out strings.Builder
	inRow, hidden := false, false
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return out.String()
		}
		if kind == html.TextToken && !hidden {
			text := string(z.Text())
			if inRow {
				text = strings.Join(strings.Fields(text), " ")
			}
			out.WriteString(text)
			continue
		}
		name, _ := z.TagName()
		tag := string(name)
		hidden = kind == html.StartTagToken && (tag == "script" || tag == "style")
		switch {
		case tag == "tr", tag == "table":
			inRow = tag == "tr" && kind == html.StartTagToken
			out.WriteByte('\n')
		case !inRow && slices.Contains([]string{"br", "p", "div", "li", "pre"}, tag):
			out.WriteByte('\n')
		default:
			out.WriteByte(' ')
		}
	}
}

type parser struct {
	Options
	filter *addressfilter.Filter // addresses accepted by AllowLocal
	seen   map[string]bool
	out    Parsed
	lineNo int // current line of a text
}

func newParser(o Options) *parser {
	p := &parser{Options: o, seen: map[string]bool{}, out: Parsed{Rejects: map[Reject]int{}, Lines: map[Reject][]int{}}}
	if p.Max <= 0 {
		p.Max = defaultMax
	}
	if p.AllowLocal {
		p.filter, _ = addressfilter.New(addressfilter.Local()...) // never fails
	}
	return p
}

// maxLines limits Parsed.Lines by reason.
const maxLines = 4

// reject counts a rejected entry.
func (p *parser) reject(r Reject) {
	p.out.Rejects[r]++
	if lines := p.out.Lines[r]; p.lineNo > 0 && len(lines) < maxLines {
		p.out.Lines[r] = append(lines, p.lineNo)
	}
}

// add adds an endpoint, or counts the reason for rejecting it.
func (p *parser) add(c Candidate, port string) {
	n, err := strconv.ParseUint(port, 10, 32)
	if err != nil || n == 0 || n > 65535 {
		p.reject(BadPort)
		return
	}
	c.Port = uint16(n)
	c.Host = strings.ToLower(strings.Trim(c.Host, "[]"))
	if reject := p.judge(c.Host); reject != "" {
		p.reject(reject)
		return
	}
	if addr, err := netip.ParseAddr(c.Host); err == nil {
		c.Host = addr.Unmap().String()
	}
	c.Protocol = cmp.Or(c.Protocol, p.Protocol)
	if p.Name != "" {
		c.Sources = []string{p.Name}
	}
	if len(p.out.Candidates) >= p.Max {
		p.reject(Capped)
		return
	}
	key := c.Key()
	if p.seen[key] {
		p.reject(Duplicate)
		return
	}
	p.seen[key] = true
	p.out.Candidates = append(p.out.Candidates, c)
}

var hostName = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (p *parser) judge(host string) Reject {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		switch {
		case isDigitsAndDots(host), len(host) > 253, !hostName.MatchString(host):
			return BadAddress
		case !strings.Contains(host, ".") && !p.AllowLocal:
			return SingleLabel
		}
		return ""
	}
	addr = addr.Unmap()
	if addr.Zone() != "" {
		return BadAddress
	}
	return p.judgeAddress(addr)
}

func (p *parser) judgeAddress(addr netip.Addr) Reject {
	refused, ok := errors.AsType[*addressfilter.Error](p.filter.Check(addr))
	if !ok {
		return ""
	}
	switch refused.Kind {
	case addressfilter.Private, addressfilter.Loopback, addressfilter.LinkLocal, addressfilter.Shared:
		return Private
	}
	return Reserved
}

// text parses lines. Each line is one endpoint, or free text that contains endpoints.
func (p *parser) text(body string) {
	var rows *table // nil before a header
	for line := range strings.Lines(body) {
		p.lineNo++
		if len(line) > maxLine {
			// A single long line with many endpoints is parsed word by word.
			p.words(strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" ,;\t\r\n|", c) }))
			continue
		}
		line = strings.TrimSpace(strings.ToValidUTF8(line, ""))
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") {
			continue
		}
		if t := tableOf(line); t != nil {
			rows = t
			continue
		}
		if rows != nil && p.csvRow(line, rows) {
			continue
		}
		if !p.line(line) && (!p.out.HTML || slices.ContainsFunc(strings.Fields(line), isQuad)) { // the port may be an image
			p.reject(Unparsed)
		}
	}
}

func (p *parser) words(words []string) {
	for _, word := range words {
		if len(word) > maxLine || !p.token(word, "") {
			p.reject(Unparsed)
		}
	}
}

// line adds the endpoints of a line. It returns false if there are none.
func (p *parser) line(line string) bool {
	fields := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" ,;\t|\"'<>()", c) })
	if len(fields) == 0 {
		return true
	}
	var label, country string
	for _, f := range fields[1:] { // hints follow the endpoint
		if code := countryOf(f); code != "" {
			country = code
		}
		if label == "" {
			label = protocolOf(f)
		}
	}
	if label == "" {
		label = protocolOf(fields[0])
	}
	var found []endpoint
	for i, f := range fields {
		e, ok := p.endpoint(f, label)
		switch {
		case ok && p.isCut(e, fields[:i], fields[i+1:]):
			return false
		case ok:
			found = append(found, e)
		case isQuad(f) || strings.Count(f, ":") > 1 && isIPv6(f):
			if i+1 < len(fields) && isNumber(fields[i+1]) { // columns
				e = endpoint{Candidate: Candidate{Protocol: label, Host: f}, port: fields[i+1]}
				if !p.out.HTML && i+3 < len(fields) && protocolOf(fields[i+2]) == "" && len(fields[i+2]) > 2 && len(fields) == i+4 {
					e.Username, e.Password = fields[i+2], fields[i+3]
				}
				found = append(found, e)
			}
		}
	}
	for _, e := range found {
		e.Country = country
		p.add(e.Candidate, e.port)
	}
	return len(found) > 0
}

// readPlain reads a list as UTF-8 text with "\n" line endings. It decompresses gzip.
func (p *parser) readPlain(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, contentencoding.ErrTooLarge
	}
	p.out.Bytes = int64(len(body))
	if err != nil {
		return body, err
	}
	if bytes.HasPrefix(body, []byte{0x1f, 0x8b, 8}) { // the magic number of gzip, and its only method
		if body, err = contentencoding.Gunzip(body, limit); err != nil {
			return nil, fmt.Errorf("decompress list: %w", err)
		}
	}
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	body = bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(body, []byte("\r"), []byte("\n")), nil
}
