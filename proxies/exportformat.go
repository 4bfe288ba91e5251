package proxies

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The files of an export that others of ours read.
const (
	ExportJSON = "live_proxies.json"
	ExportText = "live_proxies.txt"
	ExportCSV  = "live_proxies.csv"
)

// Format is a form in which proxies are exported.
type Format struct {
	Name string // what muster proxies export --format takes
	File string // its file in the folder of an export
	// encode returns what the file holds of usable proxies, the fastest first.
	encode func([]Proxy) ([]byte, error)
}

// Formats are all forms. The JSON is last: a program that watches its file finds the others new as well.
var Formats = []Format{
	{"text", ExportText, textOf},
	{"csv", ExportCSV, csvOf},
	{"json", ExportJSON, jsonOf},
}

// FormatNames returns the names of all forms.
func FormatNames() []string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// removedFormats has the replacement of each form that was removed.
var removedFormats = map[string]string{
	"http": "text", "https": "text", "socks4": "text", "socks5": "text",
	"proxychains": "muster proxies serve", "pac": "muster proxies serve", "clash": "muster proxies serve",
}

// FormatsOf returns the forms of some names, all if there are none.
func FormatsOf(names []string) ([]Format, error) {
	if len(names) == 0 {
		return Formats, nil
	}
	var list []Format
	for _, name := range names {
		at := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name })
		switch {
		case at >= 0:
			list = append(list, Formats[at])
		case removedFormats[name] != "":
			return nil, fmt.Errorf("format %q was removed; use %s", name, removedFormats[name])
		default:
			return nil, fmt.Errorf("unknown format %q; use one of %s", name, strings.Join(FormatNames(), ", "))
		}
	}
	return list, nil
}

// textOf writes the URLs of the proxies, one a line.
func textOf(list []Proxy) ([]byte, error) {
	var b bytes.Buffer
	for _, p := range list {
		b.WriteString(p.URL().String() + "\n")
	}
	return b.Bytes(), nil
}

func jsonOf(list []Proxy) ([]byte, error) {
	document, err := json.MarshalIndent(append([]Proxy{}, list...), "", "  ") // [], not null
	return append(document, '\n'), err
}

func csvOf(list []Proxy) ([]byte, error) {
	var b bytes.Buffer
	rows := csv.NewWriter(&b)
	_ = rows.Write([]string{"protocol", "host", "port", "username", "password", "exit_ip", "anonymity", "country", "latency_ms", "https"})
	for _, p := range list {
		exit := ""
		if p.Exit.IsValid() {
			exit = p.Exit.String()
		}
		_ = rows.Write([]string{p.Protocol, p.Host, strconv.Itoa(int(p.Port)), p.Username, p.Password, exit, p.Anonymity,
			p.Country, strconv.FormatFloat(p.LatencyMS, 'f', -1, 64), strconv.FormatBool(p.Can.HTTPS)})
	}
	rows.Flush()
	return b.Bytes(), rows.Error()
}
