package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/orchestrator"
	"muster/orchestrator/config"
)

// listedSite is a row of sites list.
type listedSite struct {
	Site        string   `json:"site"`
	BaseURL     string   `json:"base_url"`
	File        string   `json:"file,omitempty"` // empty for a shipped one
	Schedule    string   `json:"schedule,omitempty"`
	Description string   `json:"description,omitempty"`
	Problems    []string `json:"problems,omitempty"` // of one that cannot be scraped
}

func listSites(env environment, cfg config.Config, asJSON bool) error {
	registry, err := orchestrator.LoadSites(cfg)
	if err != nil {
		return err
	}
	rows, schedules := []listedSite{}, registry.Schedules(cfg.Sites.Schedule)
	for _, name := range registry.Names() {
		def, err := registry.Definition(name)
		if err != nil {
			return err
		}
		file := def.File()
		if def.IsShipped() {
			file = ""
		}
		rows = append(rows, listedSite{def.Site, def.BaseURL, file, schedules[name], def.Description, nil})
	}
	slices.SortStableFunc(rows, func(a, b listedSite) int { return cmp.Compare(min(len(b.File), 1), min(len(a.File), 1)) }) // shipped ones last
	for _, b := range registry.Broken() {
		rows = append(rows, listedSite{b.Site, "", b.File, schedules[b.Site], "", strings.Split(b.Err.Error(), "\n")})
	}
	if asJSON {
		return printJSON(env.stdout, rows)
	}
	t := newTable(env.stdout, "SITE START SCHEDULE FROM DESCRIPTION")
	var problems []string
	for _, r := range rows {
		if len(r.Problems) > 0 {
			r.BaseURL, r.Description = "-", "cannot be scraped, see below"
			problems = append(problems, r.Problems...)
		}
		t.row(r.Site, r.BaseURL, cmp.Or(r.Schedule, "-"), cmp.Or(r.File, "shipped"), strings.TrimSpace(r.Description))
	}
	if err := t.flush(); err != nil || len(problems) == 0 {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "\n%s\n", strings.Join(problems, "\n"))
	return err
}
