package source

import (
	"runtime"
	"strings"
	"testing"
)

// The memory use of hostile lists is proportional to their size. Not parallel: it counts allocations of the process.
func TestMemoryIsProportionalToListSize(t *testing.T) {
	const most = 3000 // the race detector increases the allocations of regexps
	for name, l := range map[string]struct{ head, part, tail string }{
		"JSON, arrays":     {"", "[", ""},
		"JSON, closed":     {strings.Repeat("[", 9000), "1,", "1" + strings.Repeat("]", 9000)},
		"JSON, objects":    {"", `{"a":`, ""},
		"JSON, flat":       {"[", `{"ip":"8.8.8.8","port":1},`, "{}]"},
		"JSON, deep keys":  {`{"a":[`, `{"b":[{"c":[]}]},`, "1]}"},
		"JSON lines":       {"", `{"a":[[[]]]}` + "\n", ""},
		"HTML, nested":     {"<html>", "<div>", ""},
		"HTML, formatting": {"<html>", "<b><i>", ""},
		"HTML, tables":     {"<html>", "<table><tr><td>", ""},
		"HTML, rows":       {"<table><tr><th>ip<th>port", "<tr><td>8.8.8.8<td>80", ""},
		"CSV, columns":     {"", "ip,port,", "\n"},
		"CSV, quotes":      {"ip,port\n", `"`, ""},
		"CSV, rows":        {"ip,port\n", "8.8.8.8,80\n", ""},
		"colons":           {"", ":", ""},
		"one line":         {"", "8.8.8.8:80 ", ""},
	} {
		const size = 1 << 20
		text := l.head + strings.Repeat(l.part, size/len(l.part)) + l.tail
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Parse(strings.NewReader(text), Options{Max: 1000}); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / uint64(size); got > most {
			t.Errorf("%s: got %d bytes allocated per unit, want at most %d", name, got, most)
		} else if testing.Verbose() {
			t.Logf("%s: %d", name, got)
		}
	}
}
