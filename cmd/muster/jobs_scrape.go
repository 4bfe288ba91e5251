package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/sites"
)

// printJob prints the state of a job, and its report if it has ended.
func printJob(env environment, j sites.Job) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(env.stdout, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("job", "%s", j.ID)
	line("site", "%s", j.Site)
	line("status", "%s", statusOf(j))
	line("started", "%s", j.Began.Format(time.RFC3339))
	if j.Resumes != "" {
		line("resumes", "%s", j.Resumes)
	}
	p := j.Pages
	line("pages", "%d of %d: %d fetched, %d skipped, %d failed, %d in flight, %d delayed",
		p.Done+p.Skipped+p.Error, p.Total, p.Done, p.Skipped, p.Error, p.InProgress, p.Delayed)
	var types []string
	for _, typ := range slices.Sorted(maps.Keys(j.Records)) {
		types = append(types, fmt.Sprintf("%d %s", j.Records[typ], typ))
	}
	line("records", "%s", strings.Join(types, ", "))
	if len(j.Delays) > 0 && j.Summary == nil {
		var delays []string
		for _, why := range slices.Sorted(maps.Keys(j.Delays)) {
			delays = append(delays, fmt.Sprintf("%s %d", why, j.Delays[why]))
		}
		line("delays", "%s", strings.Join(delays, ", "))
	}
	if p.Outputs > 0 {
		line("unwritten", "%d records wait in Redis to be written", p.Outputs)
	}
	if j.Trouble != "" {
		line("trouble", "%s", j.Trouble)
	}
	if j.Error != "" {
		line("error", "%s", j.Error)
	}
	if j.Summary == nil {
		return nil
	}
	_, err := fmt.Fprint(env.stdout, "\n"+j.Summary.Text())
	return err
}

// statusOf is the status of a scrape, with the sites whose jobs it waits for.
func statusOf(j sites.Job) string {
	if len(j.WaitsFor) > 0 {
		return j.Status + ", waits for " + strings.Join(j.WaitsFor, ", ")
	}
	return j.Status
}
