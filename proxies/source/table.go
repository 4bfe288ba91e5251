package source

import (
	"slices"
	"strings"
)

// columns are the names that the parts of an endpoint have in tables and objects, the best first.
var columns = struct{ host, protocol, user, password, country []string }{
	host:     []string{"ip", "host", "addr", "address", "ip address", "ipaddress", "ip_address", "hostname", "server", "proxy"},
	protocol: []string{"protocol", "protocols", "type", "scheme", "proto", "anonymity type"},
	user:     []string{"username", "user", "login"},
	password: []string{"password", "pass", "passwd"},
	country:  []string{"country_code", "countrycode", "country", "cc", "code"},
}

// csvHeader returns the columns when the line is a header that names a host and a port.
func csvHeader(line string) []string {
	fields := splitFields(strings.ToLower(line))
	host, port := false, false
	for _, f := range fields {
		host = host || slices.Contains(columns.host, f)
		port = port || f == "port"
	}
	if !host || !port {
		return nil
	}
	return fields
}

// splitFields splits a row of CSV, or of a table in Markdown, whose cells may be code.
func splitFields(line string) []string {
	separator, quotes := ",", `"'`
	if strings.HasPrefix(line, "|") {
		line, separator, quotes = strings.Trim(line, "|"), "|", "`"
	} else {
		for _, s := range []string{"\t", ";", ",", "|"} {
			if strings.Contains(line, s) {
				separator = s
				break
			}
		}
	}
	fields := strings.Split(line, separator)
	for i := range fields {
		fields[i] = strings.Trim(strings.TrimSpace(fields[i]), quotes)
	}
	return fields
}

func (p *parser) csv(line string, header []string) bool {
	fields := splitFields(line)
	if len(fields) < 2 {
		return false
	}
	row := map[string]string{}
	for i, f := range fields {
		if i < len(header) {
			row[header[i]] = f
		}
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

// row takes an endpoint whose parts have names.
func (p *parser) row(row map[string]string) bool {
	host, port := firstOf(row, columns.host), row["port"]
	if host == "" {
		return false
	}
	if port == "" { // "proxy": "http://1.2.3.4:80"
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
