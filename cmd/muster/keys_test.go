package main

import (
	"testing"
	"time"

	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// All ages in a row have the same format.
func TestKeyRowFormatsAgesAlike(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]string{
		-time.Second:    "0s ago", // the clock of Redis is ahead
		3 * time.Second: "3s ago",
		5 * time.Minute: "5m ago",
		7 * time.Hour:   "7h ago",
		73 * time.Hour:  "3d ago",
	} {
		at := time.Now().Add(-ago)
		row := keyRow(client.Key{Key: access.Key{Created: at, Used: at}})
		if created, used := row[4], row[6]; created != want || used != want {
			t.Errorf("%s ago: created %q, used %q, want %q", ago, created, used, want)
		}
	}
	if used := keyRow(client.Key{})[6]; used != "never" {
		t.Errorf("unused: %q, want never", used)
	}
}
