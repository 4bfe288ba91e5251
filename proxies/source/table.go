package source

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// columns lists the column and field names for each part of an endpoint, in order of preference.
var columns = struct{ host, protocol, user, password, country []string }{
	host:     []string{"ip", "host", "addr", "address", "ip address", "ipaddress", "ip_address", "hostname", "server", "proxy"},
	protocol: []string{"protocol", "protocols", "type", "scheme", "proto", "anonymity type"},
	user:     []string{"username", "user", "login"},
	password: []string{"password", "pass", "passwd"},
	country:  []string{"country_code", "countrycode", "country", "cc", "code"},
}

// table parses the rows below a header with a host and a port column.
type table struct {
	separator rune
	names     []string // lower-case column names
	line      *strings.Reader
	rows      *csv.Reader // reads line; shared by all rows because each reader allocates a 4 KiB buffer
}

// tableOf returns the table for a header line, or nil if line is not a header.
func tableOf(line string) *table {
	lower := strings.ToLower(line)
	if !strings.Contains(lower, "port") {
		return nil
	}
	t := &table{separator: ',', line: strings.NewReader("")}
	for _, separator := range "\t;,|" {
		if strings.ContainsRune(line, separator) {
			t.separator = separator
			break
		}
	}
	t.rows = csv.NewReader(t.line)
	t.rows.Comma, t.rows.LazyQuotes, t.rows.TrimLeadingSpace, t.rows.FieldsPerRecord = t.separator, true, true, -1
	t.names = t.cells(lower)
	if !slices.Contains(t.names, "port") || !slices.ContainsFunc(columns.host, func(name string) bool { return slices.Contains(t.names, name) }) {
		return nil
	}
	return t
}

// cells splits a row into cells.
func (t *table) cells(line string) []string {
	t.line.Reset(line)
	cells, err := t.rows.Read()
	if err != nil {
		return nil
	}
	for i := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "\"'")
	}
	return cells
}

// csvRow adds the endpoint of a row. It returns false if there is none.
func (p *parser) csvRow(line string, t *table) bool {
	cells := t.cells(line)
	if len(cells) < 2 {
		return false
	}
	row := map[string]string{}
	for i, cell := range cells[:min(len(cells), len(t.names))] {
		row[t.names[i]] = cell
	}
	return p.row(row)
}

func firstOf(row map[string]string, keys []string) string {
	for _, key := range keys {
		if v := row[key]; v != "" {
			return v
		}
	}
	return ""
}

// row adds an endpoint with named parts.
func (p *parser) row(row map[string]string) bool {
	host, port := firstOf(row, columns.host), row["port"]
	if host == "" {
		return false
	}
	if port == "" { // as in "proxy": "http://1.2.3.4:80"
		return p.token(host, row["protocol"])
	}
	c := Candidate{Host: host, Username: firstOf(row, columns.user), Password: firstOf(row, columns.password)}
	if country := firstOf(row, columns.country); len(country) == 2 {
		c.Country = strings.ToUpper(country)
	}
	labels := strings.FieldsFunc(firstOf(row, columns.protocol), func(r rune) bool { return strings.ContainsRune(" ,;/|[]\"'", r) })
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

// json parses JSON of any nesting. It returns false if body is not JSON.
func (p *parser) json(body []byte) bool {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	documents := 0
	for { // also accepts JSON lines
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
		if host := firstOf(row, columns.host); host != "" && p.row(row) {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(v)) { // keeps the order of candidates deterministic
			p.walk(v[key], depth-1)
		}
	case string:
		if !p.line(v) && strings.Contains(v, ":") {
			p.reject(Unparsed)
		}
	}
}

// scalar returns a JSON value as a string, the elements of a list separated by spaces.
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
