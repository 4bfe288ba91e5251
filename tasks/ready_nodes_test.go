package tasks_test

import (
	"testing"

	"muster/tasks"
	"muster/tasks/redistest"
)

// Ready nodes are listed and counted until they are revoked, whether or not a worker serves their queue.
func TestReadyNodesAreListedUntilRevoked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sig  tasks.Signature[[]int]
		want int
	}{
		"one":          {tasks.Group(ID.S(1)), 1},
		"three":        {tasks.Each([]int{1, 2, 3}, ID), 3},
		"a few places": {tasks.Each([]int{1, 2, 3}, ID, tasks.AtMost(2)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := tasks.NewClient(redistest.New(t))
			run, err := c.sig.Send(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			wantReady(t, client, c.want)
			if err := run.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantReady(t, client, 0)
		})
	}
}

func wantReady(t *testing.T, client *tasks.Client, want int) {
	t.Helper()
	nodes, err := client.Reserved(t.Context(), 10)
	if err != nil || len(nodes) != want {
		t.Errorf("got ready nodes %v, %v, want %d", nodes, err, want)
	}
	queues, err := client.Queues(t.Context())
	if err != nil || len(queues) != 1 || queues[0].Pending != int64(want) {
		t.Errorf("got queues %+v, %v, want one with %d pending", queues, err, want)
	}
}
