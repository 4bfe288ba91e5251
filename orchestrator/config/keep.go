package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// JobStates are the names in the setting jobs.keep_for: the final states of jobs.
var JobStates = []string{"completed", "failed", "cancelled"}

// checkKeepFor validates the names in jobs.keep_for.
func checkKeepFor(keep map[string]time.Duration) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if !slices.Contains(JobStates, name) {
			errs = append(errs, fmt.Errorf("invalid name %q: use a final state of jobs, one of %s", name, strings.Join(JobStates, ", ")))
		}
	}
	return errs
}
