package proxies

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"muster/internal/atomicfile"
)

// The files that Export writes into a folder.
const (
	ExportJSON = "live_proxies.json"
	ExportText = "live_proxies.txt"
	ExportCSV  = "live_proxies.csv"
)

// Export writes the usable proxies of the pool into files of dir, the fastest first, those without a latency last:
// live_proxies.json, .txt (URLs), .csv, and a list of each protocol, such as socks5.txt. Each file is replaced in one
// step, so a reader never sees half of one. The files hold the proxies' credentials and are for their owner alone.
// It returns how many were written.
func (p *Pool) Export(ctx context.Context, dir string) (int, error) {
	list, err := p.List(ctx, Filter{})
	if err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	proxies := make([]Proxy, len(list))
	for i, m := range list {
		proxies[i] = m.Proxy
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("export proxies: %w", err)
	}
	return len(proxies), writeExport(dir, proxies)
}

func writeExport(dir string, proxies []Proxy) error {
	document, err := json.MarshalIndent(proxies, "", "  ")
	if err != nil {
		return fmt.Errorf("export proxies: %w", err)
	}
	var text bytes.Buffer
	byProtocol := map[string]*bytes.Buffer{}
	for _, protocol := range []string{"http", "https", "socks4", "socks5"} { // also empty: the list of an hour ago must not stay
		byProtocol[protocol] = &bytes.Buffer{}
	}
	var table bytes.Buffer
	rows := csv.NewWriter(&table)
	_ = rows.Write([]string{"protocol", "host", "port", "username", "password", "exit_ip", "anonymity", "country", "latency_ms", "https"})
	for _, proxy := range proxies {
		line := proxy.URL().String() + "\n"
		text.WriteString(line)
		protocol := proxy.Protocol
		if protocol == "socks4a" {
			protocol = "socks4"
		}
		if b := byProtocol[protocol]; b != nil {
			b.WriteString(line)
		}
		exit := ""
		if proxy.Exit.IsValid() {
			exit = proxy.Exit.String()
		}
		_ = rows.Write([]string{proxy.Protocol, proxy.Host, strconv.Itoa(int(proxy.Port)), proxy.Username, proxy.Password, exit, proxy.Anonymity,
			proxy.Country, strconv.FormatFloat(proxy.LatencyMS, 'f', -1, 64), strconv.FormatBool(proxy.Can.HTTPS)})
	}
	rows.Flush()

	files := map[string][]byte{ExportText: text.Bytes(), ExportCSV: table.Bytes()}
	for protocol, b := range byProtocol {
		files[protocol+".txt"] = b.Bytes()
	}
	for name, content := range files {
		if err := atomicfile.WriteBytes(filepath.Join(dir, name), 0o600, content); err != nil {
			return fmt.Errorf("export proxies: %w", err)
		}
	}
	// The JSON is last: a program that watches it finds the others new as well.
	if err := atomicfile.WriteBytes(filepath.Join(dir, ExportJSON), 0o600, append(document, '\n')); err != nil {
		return fmt.Errorf("export proxies: %w", err)
	}
	return nil
}

// ReadExport reads a live_proxies.json, such as another host has written. A missing file is an error; count it as none.
func ReadExport(path string) ([]Proxy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read exported proxies: %w", err)
	}
	defer f.Close()
	var proxies []Proxy
	if err := json.NewDecoder(f).Decode(&proxies); err != nil {
		return nil, fmt.Errorf("read exported proxies: %s is corrupt: %w", path, err)
	}
	for i := range proxies {
		proxies[i].ID = proxyID(proxies[i])
	}
	return proxies, nil
}
