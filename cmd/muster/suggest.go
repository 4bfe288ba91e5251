package main

import (
	"fmt"

	"muster/internal/nearest"
)

// instead names the way to do what commands of other programs do.
var instead = map[string]string{
	"backup":   "see docs/how-to/operating.md; while muster start is stopped, a copy of the data directory is complete",
	"doctor":   "use muster health",
	"init":     "use muster start, which creates the data directory, or muster sites init URL for the definition of a site",
	"logs":     "muster start logs to standard error; its worker processes log to logs/worker.log in the data directory",
	"ps":       "use muster workers list",
	"reload":   "send SIGHUP to muster start, or change its files",
	"restart":  "stop muster start with Ctrl-C or SIGTERM and start it again; no work is lost",
	"run":      "use muster start",
	"schedule": "use muster sites list for the schedules of sites, and muster schedules list for those of workflows",
	"serve":    "use muster start",
	"stop":     "stop muster start with Ctrl-C or SIGTERM",
}

// suggest returns ", did you mean X?" when one of names is close to word.
func suggest(word string, names []string) string {
	if near := nearest.Word(word, names); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}
