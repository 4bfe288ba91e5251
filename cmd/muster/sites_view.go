package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"muster/internal/clip"
	"muster/sites/sample"
)

// printView prints the records and links of a page.
func printView(w io.Writer, v sample.View) {
	fmt.Fprintf(w, "%s %s\n", v.Kind, v.URL)
	if v.Bytes == 0 {
		return
	}
	fmt.Fprintf(w, "  %s", count(v.Bytes, "byte"))
	if v.Charset != "" {
		fmt.Fprintf(w, " of %s (by %s)", v.Charset, v.CharsetFrom)
	}
	fmt.Fprintf(w, ", %s", count(len(v.Records), "record"))
	kinds := map[string]int{}
	for _, l := range v.Links {
		kind, _, _ := strings.Cut(l, " ")
		kinds[kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(w, ", %s to %s pages", count(kinds[kind], "link"), kind)
	}
	if v.Next != "" {
		fmt.Fprintf(w, ", next %s", v.Next)
	}
	fmt.Fprintln(w)
	for i, why := range v.Invalid {
		if i == 3 {
			fmt.Fprintf(w, "  … and %d more\n", len(v.Invalid)-i)
			break
		}
		fmt.Fprintf(w, "  skipped: %s\n", clip.Line(why, 300))
	}
	if len(v.Fields) == 0 {
		return
	}
	t := newTable(w, "__FIELD FOUND BY FIRST_VALUE")
	for _, f := range v.Fields {
		n, of := f.Found()
		t.row("  "+f.Name, fmt.Sprintf("%d of %d", n, of), alternatives(f.Hits), string(f.First))
	}
	_ = t.flush() // a broken stdout shows at the end of the command
	printUnparsed(w, v.Unparsed)
}

// printUnparsed prints the optional fields whose text could not be parsed.
func printUnparsed(w io.Writer, fields []string) {
	for _, f := range fields {
		fmt.Fprintf(w, "  not parsed: %s\n", clip.Line(f, 300))
	}
}

// alternatives lists which selectors of a field's chain found values, and how often.
func alternatives(hits map[string]int) string {
	var parts []string
	for _, by := range slices.Sorted(maps.Keys(hits)) {
		switch by {
		case "none":
			continue
		case "default":
			parts = append(parts, fmt.Sprintf("default ×%d", hits[by]))
		default:
			var n int
			_, _ = fmt.Sscan(by, &n) // it counts from 0
			parts = append(parts, fmt.Sprintf("no. %d ×%d", n+1, hits[by]))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// count formats a number with its noun.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
