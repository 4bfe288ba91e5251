package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The words of the setting jobs.keep_for.
var (
	JobKinds  = []string{"pipeline", "scrape", "refresh"}
	JobStates = []string{"completed", "failed", "cancelled"} // in which a job has ended
)

// checkKeepFor checks the names of jobs.keep_for.
func checkKeepFor(keep map[string]time.Duration) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		kind, state, both := strings.Cut(name, "/")
		if both && slices.Contains(JobKinds, kind) && slices.Contains(JobStates, state) ||
			!both && (slices.Contains(JobKinds, name) || slices.Contains(JobStates, name)) {
			continue
		}
		errs = append(errs, fmt.Errorf("%q is no kind or state of jobs; write a kind (%s), a state (%s), or both as in %s/%s",
			name, strings.Join(JobKinds, ", "), strings.Join(JobStates, ", "), JobKinds[0], JobStates[1]))
	}
	return errs
}
