package main

import (
	"strings"
	"testing"

	"muster/internal/testutil"
	"muster/tasks"
)

// Every command that connects refuses the store of a newer release and names the fix.
func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	c.run("jobs", "list")
	client := testutil.Must(tasks.Connect(t.Context(), c.redis))(t)
	defer func() { _ = client.Close() }()
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:schema", "version", 99).Err())
	for _, args := range []string{
		"start --once", "worker", "jobs list", "workflows list", "queue stats", "agents list", "jobs start --file -",
	} {
		cmd, out := c.start(strings.Fields(args)...)
		const want = "the store in Redis has schema 99, written by a newer release; this one knows 0: upgrade this program"
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %v, %s, want %s", args, err, out, want)
		}
	}
}
