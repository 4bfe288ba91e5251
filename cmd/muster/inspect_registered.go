package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/tasks/tasktype"
)

// registeredTask is a task that workers have handlers for.
type registeredTask struct {
	Task    string   `json:"task"`
	Workers int      `json:"workers"`
	Queues  []string `json:"queues"`
}

func inspectRegistered(ctx context.Context, c *cli.Context, client fleet) error {
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	rows := []registeredTask{}
	for name, on := range registered(workers) {
		r := registeredTask{Task: name, Workers: len(on)}
		for _, w := range on {
			r.Queues = append(r.Queues, slices.Collect(maps.Keys(w.Queues))...)
		}
		slices.Sort(r.Queues)
		r.Queues = slices.Compact(r.Queues)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b registeredTask) int { return cmp.Compare(a.Task, b.Task) })
	return show(client.env, c, rows, []string{"TASK", "WORKERS", "QUEUES"}, func(r registeredTask) []string {
		return []string{r.Task, strconv.Itoa(r.Workers), strings.Join(r.Queues, " ")}
	})
}

// registered returns the workers that have a handler, by the names of tasks.
func registered(workers []tasktype.Worker) map[string][]tasktype.Worker {
	out := map[string][]tasktype.Worker{}
	for _, w := range workers {
		for _, name := range w.Tasks {
			out[name] = append(out[name], w)
		}
	}
	return out
}
