package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Names in the setting jobs.keep_for.
var (
	JobKinds  = []string{"pipeline", "scrape", "refresh"}
	JobStates = []string{"completed", "failed", "cancelled"} // final states
)

// checkKeepFor validates the names in jobs.keep_for.
func checkKeepFor(keep map[string]time.Duration) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		kind, state, both := strings.Cut(name, "/")
		if both && slices.Contains(JobKinds, kind) && slices.Contains(JobStates, state) ||
			!both && (slices.Contains(JobKinds, name) || slices.Contains(JobStates, name)) {
			continue
		}
		errs = append(errs, fmt.Errorf("invalid name %q: use a job kind (%s), a job state (%s), or both, for example %s/%s",
			name, strings.Join(JobKinds, ", "), strings.Join(JobStates, ", "), JobKinds[0], JobStates[1]))
	}
	return errs
}
