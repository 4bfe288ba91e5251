// Package source turns lists of proxies, in whatever form they come, into candidates.
//
// [Parse] reads text, JSON, HTML tables and CSV; [Fetcher] gets lists from files, URLs and standard input and puts
// several together. What is no usable endpoint is dropped and counted by its [Reject]. A label in a list is kept as a
// hint: only a probe knows what an endpoint speaks.
package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"muster/internal/addressfilter"
)

// Reject says why something in a list is not taken.
type Reject string

// What is not taken.
const (
	BadAddress  Reject = "bad_address"  // looked like an endpoint, and is none
	BadPort     Reject = "bad_port"     // 0, or above 65535
	Private     Reject = "private"      // a private, loopback, link-local or shared address
	Reserved    Reject = "reserved"     // multicast, documentation, "this network" and others that nobody has
	SingleLabel Reject = "single_label" // a name without a dot
	Duplicate   Reject = "duplicate"    // seen before
	LongLine    Reject = "long_line"    // a line longer than 4 kB
	Capped      Reject = "capped"       // beyond the source's maximum
	Unparsed    Reject = "unparsed"     // a line with text in which there is no endpoint
)

// Options say how to read a list.
type Options struct {
	// Protocol is the label of entries without one. Defaults to none.
	Protocol string
	// AllowLocal takes private and loopback addresses and single-label names. Defaults to false.
	AllowLocal bool
	// CIDR expands 1.2.3.0/30:80 to its hosts, up to 65,536 of a network and Max of all. Defaults to false: such lines are unparsed.
	CIDR bool
	// Max is how many candidates are taken. Defaults to 100,000.
	Max int
	// Name goes into each candidate's Sources. Defaults to none.
	Name string
}

const (
	defaultMax  = 100_000
	maxLine     = 4 << 10
	maxJSONDeep = 64
)

// Parsed is what is in a list.
type Parsed struct {
	Candidates []Candidate
	Rejects    map[Reject]int
	HTML       bool // it is a web page
}

// Parse reads a list in any form: it looks at the first bytes to tell JSON and HTML from text. The error is that of r
// alone; a list with nothing in it yields no candidates.
func Parse(r io.Reader, o Options) (Parsed, error) {
	body, err := io.ReadAll(r)
	p := &parser{Options: o, seen: map[string]bool{}, out: Parsed{Rejects: map[Reject]int{}}}
	if p.Max <= 0 {
		p.Max = defaultMax
	}
	body = decode(body)
	start := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(start) > 0 && (start[0] == '{' || start[0] == '[') && p.json(start):
	case isHTML(start):
		p.out.HTML = true
		p.html(body)
	default:
		p.text(string(body))
	}
	return p.out, err
}

// decode makes UTF-8 of what has a byte order mark, and leaves the rest: endpoints are ASCII in every encoding but UTF-16.
func decode(body []byte) []byte {
	body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
	order := ""
	switch {
	case bytes.HasPrefix(body, []byte("\xff\xfe")):
		order = "little"
	case bytes.HasPrefix(body, []byte("\xfe\xff")):
		order = "big"
	default:
		return body
	}
	out := make([]byte, 0, len(body)/2)
	for i := 2; i+1 < len(body); i += 2 {
		c := rune(body[i]) | rune(body[i+1])<<8
		if order == "big" {
			c = rune(body[i+1]) | rune(body[i])<<8
		}
		out = utf8.AppendRune(out, c)
	}
	return out
}

func isHTML(start []byte) bool {
	head := bytes.ToLower(start[:min(len(start), 1024)])
	return bytes.HasPrefix(head, []byte("<!doctype")) || bytes.Contains(head, []byte("<html")) || bytes.Contains(head, []byte("<table")) ||
		bytes.Contains(head, []byte("<tr")) || bytes.Contains(head, []byte("<body"))
}

type parser struct {
	Options
	seen     map[string]bool
	out      Parsed
	expanded int // addresses of networks, at most Max
}

// add takes an endpoint, or counts why not. It tells whether it was one at all.
func (p *parser) add(c Candidate, port string) {
	n, err := strconv.ParseUint(port, 10, 32)
	switch {
	case err != nil || n == 0 || n > 65535:
		p.out.Rejects[BadPort]++
		return
	}
	c.Port = uint16(n)
	c.Host = strings.ToLower(strings.Trim(c.Host, "[]"))
	if reject := p.judge(c.Host); reject != "" {
		p.out.Rejects[reject]++
		return
	}
	if addr, err := netip.ParseAddr(c.Host); err == nil {
		c.Host = addr.Unmap().String()
	}
	if c.Protocol == "" {
		c.Protocol = p.Protocol
	}
	if p.Name != "" {
		c.Sources = []string{p.Name}
	}
	if len(p.out.Candidates) >= p.Max {
		p.out.Rejects[Capped]++
		return
	}
	if key := c.Key(); p.seen[key] {
		p.out.Rejects[Duplicate]++
		return
	} else {
		p.seen[key] = true
	}
	p.out.Candidates = append(p.out.Candidates, c)
}

var (
	hostName   = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	digitsDots = regexp.MustCompile(`^[0-9.]+$`)
)

func (p *parser) judge(host string) Reject {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		switch {
		case digitsDots.MatchString(host), len(host) > 253, !hostName.MatchString(host):
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

// local allows what AllowLocal does.
var local, _ = addressfilter.New(addressfilter.Local()...) // never fails

func (p *parser) judgeAddress(addr netip.Addr) Reject {
	var filter *addressfilter.Filter
	if p.AllowLocal {
		filter = local
	}
	refused, ok := errors.AsType[*addressfilter.Error](filter.Check(addr))
	if !ok {
		return ""
	}
	switch refused.Kind {
	case addressfilter.Private, addressfilter.Loopback, addressfilter.LinkLocal, addressfilter.Shared:
		return Private
	}
	return Reserved
}

// text reads lines: each is one endpoint in one of its spellings, or free text with endpoints in it.
func (p *parser) text(body string) {
	columns := []string(nil) // of a CSV with a header
	for line := range strings.Lines(body) {
		if len(line) > maxLine {
			if !strings.ContainsAny(line[:maxLine], " ,;\t") {
				p.out.Rejects[LongLine]++
				continue
			}
			// One long line of many endpoints is a list as well: it is read word by word.
			p.words(strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" ,;\t\r\n|", c) }))
			continue
		}
		line = strings.TrimSpace(strings.ToValidUTF8(line, ""))
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "//") {
			continue
		}
		if header := csvHeader(line); header != nil {
			columns = header
			continue
		}
		if columns != nil && p.csv(line, columns) {
			continue
		}
		if !p.line(line) {
			p.out.Rejects[Unparsed]++
		}
	}
}

func (p *parser) words(words []string) {
	for _, word := range words {
		if len(word) > maxLine || !p.token(word, "") {
			p.out.Rejects[Unparsed]++
		}
	}
}

// csvHeader returns the columns when the line is a header that names a host and a port.
func csvHeader(line string) []string {
	fields := splitFields(strings.ToLower(line))
	host, port := false, false
	for _, f := range fields {
		host = host || slices.Contains(hostKeys, f)
		port = port || f == "port"
	}
	if !host || !port {
		return nil
	}
	return fields
}

func splitFields(line string) []string {
	separator := ","
	for _, s := range []string{"\t", ";", ","} {
		if strings.Contains(line, s) {
			separator = s
			break
		}
	}
	fields := strings.Split(line, separator)
	for i := range fields {
		fields[i] = strings.Trim(strings.TrimSpace(fields[i]), `"'`)
	}
	return fields
}

func (p *parser) csv(line string, columns []string) bool {
	fields := splitFields(line)
	if len(fields) < 2 {
		return false
	}
	row := map[string]string{}
	for i, f := range fields {
		if i < len(columns) {
			row[columns[i]] = f
		}
	}
	return p.row(row)
}

var (
	hostKeys     = []string{"ip", "host", "addr", "address", "ip address", "ipaddress", "ip_address", "hostname", "server", "proxy"}
	protocolKeys = []string{"protocol", "protocols", "type", "scheme", "proto", "anonymity type"}
	userKeys     = []string{"username", "user", "login"}
	passwordKeys = []string{"password", "pass", "passwd"}
	countryKeys  = []string{"country_code", "countrycode", "country", "cc", "code"}
)

func firstOf(row map[string]string, keys []string) string {
	for _, key := range keys {
		if v := row[key]; v != "" {
			return v
		}
	}
	return ""
}

// row takes an endpoint whose parts have names.
func (p *parser) row(row map[string]string) bool {
	host, port := firstOf(row, hostKeys), row["port"]
	if host == "" {
		return false
	}
	if port == "" { // "proxy": "http://1.2.3.4:80"
		return p.token(host, row["protocol"])
	}
	c := Candidate{Host: host, Username: firstOf(row, userKeys), Password: firstOf(row, passwordKeys)}
	if country := firstOf(row, countryKeys); len(country) == 2 {
		c.Country = strings.ToUpper(country)
	}
	labels := strings.FieldsFunc(firstOf(row, protocolKeys), func(r rune) bool { return strings.ContainsRune(" ,;/|[]\"'", r) })
	labelled := false
	for _, label := range labels {
		if protocol := protocolOf(label); protocol != "" {
			c.Protocol, labelled = protocol, true
			p.add(c, port)
		}
	}
	if !labelled {
		p.add(c, port)
	}
	return true
}

// protocolOf returns the protocol that a word stands for, or "".
func protocolOf(word string) string {
	word = strings.ToLower(strings.TrimSpace(word))
	if word == "socks" {
		return "socks5"
	}
	if slices.Contains(Protocols, word) {
		return word
	}
	return ""
}

var (
	cidr    = regexp.MustCompile(`^(\d{1,3}(?:\.\d{1,3}){3}/\d{1,2}):(\d+)$`)
	spysMe  = regexp.MustCompile(`^([A-Z]{2})-[NAH]`)
	bareIPs = regexp.MustCompile(`^(\d{1,3}(?:\.\d{1,3}){3})$`)
)

// line takes the endpoints of a line; false when there is none.
func (p *parser) line(line string) bool {
	fields := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" ,;\t|\"'<>()", c) })
	if len(fields) == 0 {
		return true
	}
	if m := cidr.FindStringSubmatch(fields[0]); m != nil {
		return p.CIDR && p.expand(m[1], m[2])
	}
	found := false
	var label, country string
	for _, f := range fields[1:] { // hints stand behind the endpoint
		if m := spysMe.FindStringSubmatch(f); m != nil {
			country = m[1]
		} else if len(f) == 2 && f == strings.ToUpper(f) && f[0] >= 'A' && f[0] <= 'Z' {
			country = f
		}
		if label == "" {
			label = protocolOf(f)
		}
	}
	if label == "" {
		label = protocolOf(fields[0])
	}
	before := len(p.out.Candidates)
	for i, f := range fields {
		switch {
		case p.token(f, label):
			found = true
		case bareIPs.MatchString(f) || strings.Count(f, ":") > 1 && isIPv6(f):
			if i+1 < len(fields) && isNumber(fields[i+1]) { // columns
				c := Candidate{Protocol: label, Host: f}
				if i+3 < len(fields) && protocolOf(fields[i+2]) == "" && len(fields[i+2]) > 2 && len(fields) == i+4 {
					c.Username, c.Password = fields[i+2], fields[i+3]
				}
				p.add(c, fields[i+1])
				found = true
			}
		}
	}
	for i := before; i < len(p.out.Candidates) && country != ""; i++ {
		p.out.Candidates[i].Country = country
	}
	return found
}

func isIPv6(s string) bool {
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil && addr.Is6()
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil && len(s) <= 6
}

func looksLikeHost(s string) bool {
	if s == "" || isNumber(s) {
		return false
	}
	if strings.HasPrefix(s, "[") {
		return isIPv6(s)
	}
	return digitsDots.MatchString(s) && strings.Count(s, ".") == 3 || hostName.MatchString(strings.ToLower(s))
}

// token takes one word in one of the spellings of an endpoint; false when it is none:
// [scheme://][user:pass@]host:port, host:port:user:pass, user:pass:host:port, host:port@user:pass.
func (p *parser) token(word, label string) bool {
	c := Candidate{Protocol: protocolOf(label)}
	if scheme, rest, ok := strings.Cut(word, "://"); ok {
		if c.Protocol = protocolOf(scheme); c.Protocol == "" {
			return false
		}
		word = rest
		if end := strings.IndexAny(word, "/?#"); end >= 0 && !strings.Contains(word[end:], "@") {
			word = word[:end]
		}
	}
	if at := strings.LastIndexByte(word, '@'); at >= 0 {
		left, right := word[:at], word[at+1:]
		host, port, ok := hostPort(right)
		if !ok { // host:port@user:pass
			host, port, ok = hostPort(left)
			left = right
		}
		if ok {
			user, password, _ := strings.Cut(left, ":")
			c.Username, c.Password = unescape(user), unescape(password)
			c.Host = host
			p.add(c, port)
			return true
		}
	}
	if host, port, ok := hostPort(word); ok {
		c.Host = host
		if bareName := !strings.ContainsAny(host, ".["); bareName && c.Protocol == "" && !p.AllowLocal {
			// "note:1" in running text is no endpoint worth counting
			return false
		}
		p.add(c, port)
		return true
	}
	parts := strings.SplitN(word, ":", 4) // the password may have colons
	if len(parts) != 4 || strings.HasPrefix(word, "[") || isIPv6(word) {
		return false
	}
	switch {
	case looksLikeHost(parts[0]) && strings.Contains(parts[0], ".") && isNumber(parts[1]):
		c.Host, c.Username, c.Password = parts[0], unescape(parts[2]), unescape(parts[3])
		p.add(c, parts[1])
	case looksLikeHost(parts[2]) && strings.Contains(parts[2], ".") && isNumber(parts[3]):
		c.Host, c.Username, c.Password = parts[2], unescape(parts[0]), unescape(parts[1])
		p.add(c, parts[3])
	default:
		return false
	}
	return true
}

// hostPort splits host:port with a number for a port and something like a host before it.
func hostPort(s string) (host, port string, ok bool) {
	colon := strings.LastIndexByte(s, ':')
	if colon <= 0 {
		return "", "", false
	}
	host, port = s[:colon], s[colon+1:]
	return host, port, isNumber(port) && looksLikeHost(host)
}

// unescape undoes %-encoding where there is a valid one.
func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

// expand adds the hosts of an IPv4 network.
func (p *parser) expand(network, port string) bool {
	prefix, err := netip.ParsePrefix(network)
	if err != nil {
		return false
	}
	bits := prefix.Addr().BitLen() - prefix.Bits()
	if bits > 16 {
		return false
	}
	left := 1 << bits
	for addr := prefix.Masked().Addr(); left > 0 && p.expanded < p.Max; addr = addr.Next() {
		p.add(Candidate{Host: addr.String()}, port)
		p.expanded++
		left--
	}
	if left > 0 {
		p.out.Rejects[Capped] += left
	}
	return true
}

// json walks a document of any nesting; false when it is none.
func (p *parser) json(body []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	documents := 0
	for { // also one document a line
		var document any
		if err := decoder.Decode(&document); err != nil {
			return documents > 0
		}
		documents++
		p.walk(document, maxJSONDeep)
	}
}

func (p *parser) walk(v any, depth int) {
	if depth == 0 {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, member := range v {
			p.walk(member, depth-1)
		}
	case map[string]any:
		row := map[string]string{}
		for key, member := range v {
			row[strings.ToLower(key)] = scalar(member)
		}
		if host := firstOf(row, hostKeys); host != "" && p.row(row) {
			return
		}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys) // so that the order of candidates does not change from run to run
		for _, key := range keys {
			p.walk(v[key], depth-1)
		}
	case string:
		if !p.line(v) && strings.Contains(v, ":") {
			p.out.Rejects[Unparsed]++
		}
	}
}

// scalar is a JSON value as a word, a list of words with blanks between.
func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	case []any:
		var words []string
		for _, member := range v {
			words = append(words, scalar(member))
		}
		return strings.Join(words, " ")
	}
	return ""
}

// html reads tables: a cell that is an address followed by one that is a port. Text outside of tables is read as text.
func (p *parser) html(body []byte) {
	z := html.NewTokenizer(bytes.NewReader(body))
	z.SetMaxBuf(1 << 20)
	var cells []string
	var cell, loose strings.Builder
	inCell, skip := false, 0
	endCell := func() {
		if inCell {
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
			inCell = false
		}
	}
	endRow := func() {
		endCell()
		p.tableRow(cells)
		cells = nil
	}
	for {
		switch z.Next() {
		case html.ErrorToken:
			endRow()
			p.text(loose.String())
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			switch token.Data {
			case "tr":
				endRow()
				for i, a := range token.Attr { // <tr data-ip="…" data-port="…">
					if host, ok := strings.CutPrefix(a.Key, "data-"); ok && slices.Contains(hostKeys, host) {
						for _, b := range token.Attr[i+1:] {
							if b.Key == "data-port" {
								cells = append(cells, a.Val, b.Val)
							}
						}
					}
				}
			case "td", "th":
				endCell()
				inCell = true
			case "script", "style":
				skip++
			case "br", "p", "div", "li", "pre":
				loose.WriteByte('\n')
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			switch string(name) {
			case "td", "th":
				endCell()
			case "tr", "table":
				endRow()
			case "script", "style":
				skip = max(0, skip-1)
			}
		case html.TextToken:
			switch {
			case skip > 0:
			case inCell:
				cell.Write(z.Text())
			default:
				if text := string(z.Text()); strings.Contains(text, ":") {
					loose.WriteString(text)
				}
			}
		}
	}
}

func (p *parser) tableRow(cells []string) {
	for i, cell := range cells {
		if bareIPs.MatchString(cell) || isIPv6(cell) {
			if i+1 >= len(cells) || !isNumber(cells[i+1]) {
				p.out.Rejects[Unparsed]++ // a port in an image or a script
				return
			}
			row := map[string]string{"ip": cell, "port": cells[i+1]}
			for _, other := range cells[i+2:] {
				labels := strings.FieldsFunc(other, func(c rune) bool { return strings.ContainsRune(" ,/", c) })
				for _, label := range labels {
					if protocolOf(label) != "" {
						row["protocol"] = strings.TrimSpace(row["protocol"] + " " + label)
					}
				}
				if len(other) == 2 && strings.ToUpper(other) == other {
					row["country"] = other
				}
			}
			p.row(row)
			return
		}
		if p.token(cell, "") {
			return
		}
	}
}
