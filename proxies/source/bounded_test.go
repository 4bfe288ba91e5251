package source

import (
	"runtime"
	"strings"
	"testing"
)

// What a hostile list costs is bounded by its size. Not parallel: memory is counted for the whole process.
func TestHostileListsCostNoMoreThanTheirSize(t *testing.T) {
	const most = 3000 // under the race detector regexps allocate more
	for name, l := range map[string]struct{ head, part, tail string }{
		"JSON, arrays":       {"", "[", ""},
		"JSON, closed":       {strings.Repeat("[", 9000), "1,", "1" + strings.Repeat("]", 9000)},
		"JSON, objects":      {"", `{"a":`, ""},
		"JSON, flat":         {"[", `{"ip":"8.8.8.8","port":1},`, "{}]"},
		"JSON, deep keys":    {`{"a":[`, `{"b":[{"c":[]}]},`, "1]}"},
		"JSON lines":         {"", `{"a":[[[]]]}` + "\n", ""},
		"HTML, nested":       {"<html>", "<div>", ""},
		"HTML, formatting":   {"<html>", "<b><i>", ""},
		"HTML, tables":       {"<html>", "<table><tr><td>", ""},
		"HTML, rows":         {"<table><tr><th>ip<th>port", "<tr><td>8.8.8.8<td>80", ""},
		"CSV, columns":       {"", "ip,port,", "\n"},
		"CSV, quotes":        {"ip,port\n", `"`, ""},
		"CSV, rows":          {"ip,port\n", "8.8.8.8,80\n", ""},
		"networks":           {"", "9.0.0.0/16:80\n", ""},
		"an endless network": {"", "2001::/16:80\n", ""},
		"Clash, entries":     {"proxies:\n", "- {type: http, server: a.b, port: 1}\n", ""},
		"Clash, nested":      {"proxies:\n- ", "[{a: ", ""},
		"Clash, dashes":      {"proxies:\n", "- ", ""},
		"Clash, lines":       {"proxies:\n", "- a\n", ""},
		"Markdown":           {"| ip | port |\n", "| `8.8.8.8` | 80 |\n", ""},
		"base64":             {"", "OC44", ""},
		"UTF-16":             {"\xff\xfe", ":\x00", ""},
		"colons":             {"", ":", ""},
		"one line":           {"", "8.8.8.8:80 ", ""},
	} {
		size := 1 << 20
		if strings.HasPrefix(name, "Clash") { // each entry is parsed by itself, so that a few thousand show what it costs
			size = 1 << 16
		}
		text := l.head + strings.Repeat(l.part, size/len(l.part)) + l.tail
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse(strings.NewReader(text), Options{CIDR: true, Max: 1000}); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / uint64(size); got > most {
			t.Errorf("%s: got %d bytes allocated for each, want at most %d", name, got, most)
		} else if testing.Verbose() {
			t.Logf("%s: %d", name, got)
		}
	}
}

// Entries of a Clash configuration are YAML, which costs much: of a list only so many are read.
func TestClashEntriesAreBounded(t *testing.T) {
	t.Parallel()
	p := newParser(Options{})
	const n = 1_000_000
	if p.clash([]byte("proxies:\n" + strings.Repeat("- {}\n", n))); p.entries != 0 || p.out.Rejects[Unparsed] != n {
		t.Errorf("without a server: %d were read as YAML, rejects %v, want none", p.entries, p.out.Rejects)
	}
	for more, wants := range map[int]int{0: 2, 1: 1} { // what is read of two
		p := newParser(Options{})
		p.entries = maxClash - 2 + more
		p.clash([]byte("proxies:\n- {type: http, server: 9.9.9.9, port: 80}\n- {type: http, server: 9.9.9.9, port: 81}\n"))
		if err := p.tooMany(); len(p.out.Candidates) != wants || (err != nil) != (more > 0) {
			t.Errorf("%d more than are read: got %d candidates, %v, want %d", more, len(p.out.Candidates), err, wants)
		}
	}
}
