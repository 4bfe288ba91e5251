package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/jobs/pipeline"
)

// printPipeline prints a pipeline as the YAML that it could be read from.
func printPipeline(env environment, p *pipeline.Pipeline) error {
	var b strings.Builder
	line := func(indent, key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, key, value)
		}
	}
	line("", "name", p.Name)
	if p.Description != "" {
		line("", "description", fmt.Sprintf("%q", p.Description))
	}
	line("", "labels", flowList(p.Labels))
	line("", "context", flowList(p.Context))
	line("", "stuck_after", spanText(p.StuckAfter))
	line("", "timeout", spanText(p.Timeout))
	b.WriteString("stages:\n")
	for _, st := range p.Stages {
		line("  - ", "name", st.Name)
		line("    ", "role", st.Role)
		line("    ", "task", st.Task)
		line("    ", "takes", st.Takes)
		if len(st.States) > 0 {
			var states []string
			for _, verdict := range slices.Sorted(maps.Keys(st.States)) {
				states = append(states, verdict+": "+st.States[verdict])
			}
			line("    ", "states", "{"+strings.Join(states, ", ")+"}")
		}
		line("    ", "timeout", spanText(st.Timeout))
		if st.MaxRetries != nil {
			line("    ", "max_retries", fmt.Sprint(*st.MaxRetries))
		}
		if st.Review {
			line("    ", "review", "true")
		}
	}
	_, err := fmt.Fprint(env.stdout, b.String())
	return err
}

// flowList is a list in one line of YAML, or "".
func flowList(list []string) string {
	if len(list) == 0 {
		return ""
	}
	words := slices.Clone(list)
	for i, w := range words {
		if w == pipeline.AnyContext { // an alias in YAML, unless it is quoted
			words[i] = strconv.Quote(w)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// spanText is a duration without its zeros, as in 1h30m; "" for none.
func spanText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if cut, ok := strings.CutSuffix(text, zero); ok {
			text = cut + zero[:1]
		}
	}
	return text
}
