package archive

import (
	"context"
	"encoding/json"
	"errors"

	"muster/tasks"
	"muster/tasks/api"
	"muster/tasks/tasktype"
)

// ArchivedWorkflow is an archived workflow with its nodes, which have the graph, inputs, results, failures, steps and times.
type ArchivedWorkflow struct {
	api.Workflow
	Tasks   string           `json:"tasks" doc:"its task or, if there are several, the first and the last"`
	Nodes   []api.NodeValues `json:"nodes"`
	Omitted int              `json:"omitted,omitempty" doc:"number of values and nodes that were too large or too many"`
	Expired bool             `json:"expired,omitempty" doc:"the workflow had expired before it was archived: there are no nodes"`
}

// Limits of a document.
const (
	mostNodes  = 10_000
	mostValues = 1000     // nodes with values
	maxValue   = 16 << 10 // bytes
	maxValues  = 1 << 20  // bytes of all values
)

// read returns the document of a workflow that has ended. Its error means that Redis is unavailable.
func read(ctx context.Context, client *tasks.Client, e *tasktype.WorkflowEvent) (ArchivedWorkflow, error) {
	d := ArchivedWorkflow{Workflow: api.WorkflowOf(e.Workflow), Tasks: e.Tasks, Nodes: []api.NodeValues{}}
	w := client.Workflow(e.ID)
	info, err := w.Info(ctx)
	if err == nil && !info.Created.Equal(e.Created) { // a later workflow has the ID
		err = tasks.ErrNotFound
	}
	var nodes []tasktype.Node
	if err == nil {
		nodes, err = w.Nodes(ctx)
	}
	if d.Expired = errors.Is(err, tasks.ErrNotFound); d.Expired {
		return d, nil
	}
	if tasks.Unavailable(err) || ctx.Err() != nil {
		return d, err
	}
	left := maxValues
	keep := func(raw *json.RawMessage) {
		if len(*raw) > min(maxValue, left) {
			*raw = nil
			d.Omitted++
		}
		left -= len(*raw)
	}
	for i := range nodes[:min(len(nodes), mostNodes)] {
		v := api.NodeValues{Node: api.NodeOf(&nodes[i])}
		if i < mostValues {
			values, err := api.ReadNode(ctx, w, v.ID)
			if tasks.Unavailable(err) || ctx.Err() != nil {
				return d, err
			}
			v.Input, v.Result, v.Steps = values.Input, values.Result, values.Steps
			keep(&v.Input)
			keep(&v.Result)
			for i := range v.Steps {
				keep(&v.Steps[i].Value)
			}
		}
		d.Nodes = append(d.Nodes, v)
	}
	d.Omitted += max(len(nodes)-mostNodes, 0)
	return d, nil
}
