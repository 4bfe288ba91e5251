package orchestrator

import (
	"slices"
	"strings"
	"testing"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/jobs"
	"muster/orchestrator/config"
)

// Every process checks the schema of the store when it connects.
func TestConnectChecksTheSchema(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Redis.URL = redistest.URL(t)
	client := testutil.Must(Connect(t.Context(), cfg))(t)
	defer client.Close()
	if v, err := NewStore(client, nil).Version(t.Context()); err != nil || v != len(migrations) {
		t.Errorf("fresh store: got schema %d, %v, want %d", v, err, len(migrations))
	}
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:schema", "version", 1000).Err())
	if _, err := Connect(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "upgrade this program") {
		t.Errorf("newer store: got %v, want that this program must be upgraded", err)
	}
}

// The states in the setting jobs.keep_for match the package jobs.
func TestSettingNamesAllStatesOfJobs(t *testing.T) {
	t.Parallel()
	var done []string
	for _, st := range jobs.Statuses {
		if st.Terminal() {
			done = append(done, string(st))
		}
	}
	if !slices.Equal(config.JobStates, done) {
		t.Errorf("states: got %v, want %v", config.JobStates, done)
	}
}
