package tasks_test

import (
	"strings"
	"testing"

	"muster/tasks"
	"muster/tasks/facttest"
)

// A stored workflow that is damaged ends with an error and harms neither its worker nor other workflows.
func TestDamagedWorkflowEnds(t *testing.T) {
	t.Parallel()
	inWorlds(t, func(t *testing.T, w *world) {
		rdb := w.client.Redis()
		if err := w.client.PauseQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		sender := tasks.NewClient(rdb) // another process: the worker has never seen the workflows
		t.Cleanup(func() { _ = sender.Close() })
		damages := map[string]func(string) string{
			"empty":             func(string) string { return "" },
			"no object":         func(string) string { return "[1]" },
			"null":              func(string) string { return "null" },
			"no nodes":          func(string) string { return "{}" },
			"cut":               func(g string) string { return g[:len(g)/2] },
			"no tasks":          func(g string) string { return strings.Replace(g, `"s":[`, `"s":[],"z":[`, 1) },
			"no such input":     func(g string) string { return strings.Replace(g, `"i":1`, `"i":7`, 1) },
			"negative input":    func(g string) string { return strings.Replace(g, `"i":1`, `"i":-1`, 1) },
			"input from itself": func(g string) string { return strings.Replace(g, `"i":1`, `"i":2`, 1) },
			"no such kind":      func(g string) string { return strings.Replace(g, `"i":1`, `"i":1,"k":99`, 1) },
			"no such root":      func(g string) string { return strings.Replace(g, `"o":1`, `"o":5`, 1) },
			"too many nodes":    func(g string) string { return strings.Replace(g, `"i":1`, `"i":1,"x":2000000000`, 1) },
			"too many arguments": func(g string) string {
				return strings.Replace(g, `"i":1`, `"i":1,"k":1,"a":[0,2000000000]`, 1)
			},
		}
		runs := map[string]*tasks.AsyncResult[int]{}
		for name, damage := range damages {
			run, err := tasks.Chain(ID.S(1), Inc).Send(t.Context(), sender)
			if err != nil {
				t.Fatal(err)
			}
			key := flowKey(t, rdb, run.ID())
			graph := rdb.HGet(t.Context(), key, "g").Val()
			damaged := damage(graph)
			if damaged == graph {
				t.Fatalf("%s: the damage changes nothing of %s", name, graph)
			}
			rdb.HSet(t.Context(), key, "g", damaged)
			runs[name] = run
		}
		if err := w.client.ResumeQueue(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		for name, run := range runs {
			key := flowKey(t, rdb, run.ID())
			facttest.Eventually(t, name+": the workflow is ended", func() bool { return rdb.HExists(t.Context(), key, "!").Val() })
			for _, c := range []*tasks.Client{w.client, sender} {
				_, err := tasks.Attach[int](c, run.ID()).Wait(limited(t))
				if f := wantFailure(t, err, "damaged"); f.Code != tasks.CodeDamaged {
					t.Errorf("%s: got %+v, want code %s", name, f, tasks.CodeDamaged)
				}
			}
		}
		if got, err := send(t, w, ID.S(2)); err != nil || got != 2 {
			t.Errorf("another workflow: got %v, %v, want 2", got, err)
		}
	})
}
