package proxies

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/internal/atomicfile"
)

// Export writes the usable proxies of the pool to files in dir, in the given formats or in all of Formats. Proxies
// are sorted by latency; proxies without a latency come last. Each file is replaced atomically. The files contain
// credentials and are accessible to their owner only. Export returns the number of proxies.
func (p *Pool) Export(ctx context.Context, dir string, formats ...string) (int, error) {
	return p.export(ctx, formats, func(f Format, content []byte) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		return atomicfile.WriteBytes(filepath.Join(dir, f.File), 0o600, content)
	})
}

// ExportTo writes the usable proxies of the pool to w in one format, in the order of Export.
func (p *Pool) ExportTo(ctx context.Context, w io.Writer, format string) error {
	_, err := p.export(ctx, []string{format}, func(_ Format, content []byte) error {
		_, err := w.Write(content)
		return err
	})
	return err
}

// export passes the content of each file to write.
func (p *Pool) export(ctx context.Context, formats []string, write func(f Format, content []byte) error) (int, error) {
	chosen, err := FormatsOf(formats)
	if err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	members, err := p.List(ctx, Filter{})
	if err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	list := make([]Proxy, len(members))
	for i, m := range members {
		list[i] = m.Proxy
	}
	for _, f := range chosen {
		content, err := f.encode(list)
		if err == nil {
			err = write(f, content)
		}
		if err != nil {
			return 0, fmt.Errorf("export proxies as %s: %w", f.Name, err)
		}
	}
	return len(list), nil
}

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
