package proxies

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/internal/redistest"
	"muster/proxies/probe"
)

// Readers of an exported file see a complete list at any time. It is sorted and contains no transparent proxies.
func TestExport(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(3, nil), result(1, nil), result(2, func(r *probe.Result) { r.Protocol = "socks4a" }),
		result(9, func(r *probe.Result) { r.Latency = probe.Latency{} }), result(4, func(r *probe.Result) { r.Anonymity = probe.Transparent }))
	dir := filepath.Join(t.TempDir(), "made", "here")
	if n, err := pool.Export(t.Context(), dir); err != nil || n != 4 {
		t.Fatalf("got %d %v, want 4", n, err)
	}
	exported, err := readExport(dir)
	var ports []uint16
	for _, p := range exported {
		ports = append(ports, p.Port)
	}
	if err != nil || !slices.Equal(ports, []uint16{1, 2, 3, 9}) {
		t.Fatalf("got %v %v, want 1 2 3 and 9, which has no latency, last", ports, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, ExportText))
	if err != nil || !strings.HasPrefix(string(text), "http://u:secret@8.8.8.8:1\nsocks4a://u:secret@8.8.8.8:2\n") {
		t.Errorf("got %q %v, want the URLs with the fastest first", text, err)
	}
	if info, err := os.Stat(filepath.Join(dir, ExportJSON)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v %v, want 0600: it contains passwords", info.Mode(), err)
	}

	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if seen, err := readExport(dir); err != nil || len(seen) != 4 {
				t.Errorf("a reader got %d proxies, %v", len(seen), err)
				return
			}
		}
	})
	for range 50 {
		if _, err := pool.Export(t.Context(), dir); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	readers.Wait()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != 0 {
		t.Errorf("remaining files: %v", left)
	}
}

func TestExportFormats(t *testing.T) {
	t.Parallel()
	list := []Proxy{
		{Candidate: Candidate{Protocol: "http", Host: "8.8.8.8", Port: 80}},
		{Candidate: Candidate{Protocol: "https", Host: "gate.example.org", Port: 443, Username: "u", Password: `p"w: #`}},
		{Candidate: Candidate{Protocol: "socks5", Host: "2606:4700::1111", Port: 1080}},
	}
	for name, want := range map[string]string{
		"text": "http://8.8.8.8:80\nhttps://u:p%22w%3A%20%23@gate.example.org:443\nsocks5://[2606:4700::1111]:1080\n",
		"csv":  `https,gate.example.org,443,u,"p""w: #",`,
		"json": `"host": "2606:4700::1111"`,
	} {
		formats, err := FormatsOf([]string{name})
		if err != nil || len(formats) != 1 {
			t.Fatalf("%s: got %v, %v", name, formats, err)
		}
		if got, err := formats[0].encode(list); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %v and\n%s\nwant in it\n%s", name, err, got, want)
		}
	}
	for _, f := range Formats {
		if got, err := f.encode(nil); err != nil || strings.Contains(string(got), "null") {
			t.Errorf("%s of no proxies: got %q, %v", f.Name, got, err)
		}
	}
	if _, err := FormatsOf([]string{"text", "xml"}); err == nil || !strings.Contains(err.Error(), "one of text, csv, json") {
		t.Errorf("xml: got %v, want the formats", err)
	}
}

// readExport reads an exported JSON file.
func readExport(dir string) (list []Proxy, err error) {
	text, err := os.ReadFile(filepath.Join(dir, ExportJSON))
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	return list, err
}

// Passwords occur in exported files and in no printed form.
func TestPasswordIsNotPrinted(t *testing.T) {
	t.Parallel()
	pool := newPool(t, redistest.New(t), nil)
	mustPublish(t, pool, result(1, nil))
	list, err := pool.List(t.Context(), Filter{})
	if err != nil || len(list) != 1 || list[0].Password != "secret" {
		t.Fatalf("got %v %v, want one proxy with its password", list, err)
	}
	r := result(1, nil)
	for _, v := range []any{list, list[0], r} {
		text, err := json.Marshal(v)
		if err != nil || strings.Contains(string(text), "secret") || !strings.Contains(string(text), `"username":"u"`) {
			t.Errorf("got %s %v, want the user name without the password", text, err)
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, list[0].Proxy) + fmt.Sprintf(format, r.Candidate) + fmt.Sprintf(format, r.Candidate.LogValue()); strings.Contains(got, "secret") {
			t.Errorf("%s: got %s, want no password", format, got)
		}
	}
}
