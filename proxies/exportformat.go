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

// Names of exported files that other parts of muster read.
const (
	ExportJSON = "live_proxies.json"
	ExportText = "live_proxies.txt"
	ExportCSV  = "live_proxies.csv"
)

// A Format is an export format.
type Format struct {
	Name string // value of muster proxies export --format
	File string // file name in the export directory
	// encode returns the content of the file.
	encode func([]Proxy) ([]byte, error)
}

// Formats lists all formats. JSON is last: when a program sees a new JSON file, the other files are new too.
var Formats = []Format{
	{"text", ExportText, textOf},
	{"csv", ExportCSV, csvOf},
	{"json", ExportJSON, jsonOf},
}

// FormatNames returns the names of all formats.
func FormatNames() []string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return names
}

// FormatsOf returns the formats with the given names, or all formats if there are none.
func FormatsOf(names []string) ([]Format, error) {
	if len(names) == 0 {
		return Formats, nil
	}
	var list []Format
	for _, name := range names {
		at := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown format %q; use one of %s", name, strings.Join(FormatNames(), ", "))
		}
		list = append(list, Formats[at])
	}
	return list, nil
}

// textOf returns the URLs of the proxies, one per line.
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
