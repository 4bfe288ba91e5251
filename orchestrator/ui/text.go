package ui

import (
	"cmp"
	"maps"
	"slices"

	"muster/internal/clip"
	"muster/internal/webui"
	"muster/jobs"
)

// line returns the beginning of an untrusted string on one line, at most n characters, safe for display.
func line(n int, s string) string { return webui.Plain(clip.Line(s, n)) }

// total is a number with a name.
type total struct {
	Name string
	N    int64
}

// totals converts numbers by name.
func totals(of map[string]int64) []total {
	var all []total
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, total{name, of[name]})
	}
	return all
}

// part is a part of a bar with a width of 1000.
type part struct {
	State string
	N     int64
	X, W  float64
}

// parts returns the non-empty parts of a bar.
func parts(of ...part) []part {
	var sum int64
	for _, p := range of {
		sum += p.N
	}
	of = slices.DeleteFunc(of, func(p part) bool { return p.N <= 0 })
	x := 0.0
	for i := range of {
		of[i].X, of[i].W = x, 1000*float64(of[i].N)/float64(max(sum, 1))
		x += of[i].W
	}
	return of
}

// byState returns the parts of a bar of items, ended items first.
func byState(c jobs.Counts) []part {
	return parts(part{State: string(jobs.ItemIntegrated), N: c.Integrated}, part{State: string(jobs.ItemRejected), N: c.Rejected}, part{State: string(jobs.ItemFailed), N: c.Failed},
		part{State: string(jobs.ItemReview), N: c.Review}, part{State: string(jobs.ItemValidating), N: c.Validating}, part{State: string(jobs.ItemPending), N: c.Pending})
}

// group is a group of errors with the same text.
type group struct {
	Text  string
	Count int
	Key   string // key of an item
}

// grouped groups errors by text, most frequent first.
func grouped(errs []jobs.ItemError) []group {
	at := map[string]int{}
	var all []group
	for _, e := range errs {
		text := webui.Plain(clip.Line(e.Error, 300))
		i, ok := at[text]
		if !ok {
			i = len(all)
			at[text] = i
			all = append(all, group{Text: cmp.Or(text, "no reason was given"), Key: e.Key})
		}
		all[i].Count++
	}
	slices.SortStableFunc(all, func(a, b group) int { return b.Count - a.Count })
	return all
}

// checkLength returns an error if one of values is longer than limit bytes.
func checkLength(limit int, values ...string) error {
	for _, v := range values {
		if len(v) > limit {
			return webui.Invalid("A value is too long: at most %d bytes are allowed.", limit)
		}
	}
	return nil
}
