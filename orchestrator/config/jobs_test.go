package config_test

import (
	"testing"
	"time"

	"muster/orchestrator/config"
)

// The documented defaults of jobs.
func TestDefaultsOfJobs(t *testing.T) {
	t.Parallel()
	j := config.Default().Jobs
	if j.Timeout != 168*time.Hour || j.StuckAfter != time.Hour || j.MaxRetries != 5 || j.CheckEvery != 30*time.Second || j.Dedupe != "join" {
		t.Errorf("got timeout %v, stuck after %v, %d retries, a check every %v and dedupe %q, want 168h, 1h, 5, 30s and join",
			j.Timeout, j.StuckAfter, j.MaxRetries, j.CheckEvery, j.Dedupe)
	}
}
