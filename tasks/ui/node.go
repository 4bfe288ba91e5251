package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"muster/internal/webui"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// shownBytes is how much of a result is on a page; the rest can be downloaded.
const shownBytes = 64 << 10

// nodeData is a node of a workflow.
type nodeData struct {
	Workflow string
	tasktype.Node
	Before, After []tasktype.Node // the nodes that it comes after, and that come after it; at most mostNeighbours
	MoreBefore    int
	MoreAfter     int
	Result        string // indented, at most shownBytes
	Cut           bool   // whether the result is longer
	Bytes         int    // of the result
}

const mostNeighbours = 20

// Waited is how long the node waited before its last attempt, as far as the nodes before it tell.
func (d nodeData) Took(now time.Time) time.Duration {
	switch {
	case d.Started.IsZero():
		return -1
	case d.Ended.IsZero():
		return now.Sub(d.Started)
	}
	return d.Ended.Sub(d.Started)
}

func (s *site) node(ctx context.Context, r *http.Request) (webui.View, error) {
	id, node := r.PathValue("id"), r.PathValue("node")
	nodes, err := s.client.Nodes(ctx, id)
	if err != nil {
		return webui.View{}, err
	}
	d := nodeData{Workflow: id}
	needs := map[string]bool{}
	for i := range nodes {
		if nodes[i].ID == node {
			d.Node = nodes[i]
			for _, n := range nodes[i].Needs {
				needs[n] = true
			}
		}
	}
	if d.ID == "" {
		return webui.View{}, webui.NotFound("The workflow has no such node.")
	}
	for i := range nodes {
		if needs[nodes[i].ID] {
			d.Before = append(d.Before, nodes[i])
		}
		for _, n := range nodes[i].Needs {
			if n == node {
				d.After = append(d.After, nodes[i])
			}
		}
	}
	d.MoreBefore, d.MoreAfter = max(len(d.Before)-mostNeighbours, 0), max(len(d.After)-mostNeighbours, 0)
	d.Before, d.After = d.Before[:len(d.Before)-d.MoreBefore], d.After[:len(d.After)-d.MoreAfter]
	if d.Status == tasktype.Success {
		raw, err := s.result(ctx, id, node)
		if err != nil {
			return webui.View{}, err
		}
		d.Bytes = len(raw)
		d.Result, d.Cut = readable(raw)
	}
	return webui.View{Name: d.Task, At: s.cfg.Prefix + "/workflows", Data: d}, nil
}

// result reads the result of a node as JSON. A node without one has none: "".
func (s *site) result(ctx context.Context, id, node string) (json.RawMessage, error) {
	raw, err := tasks.NodeValue[json.RawMessage](ctx, s.client, id, node)
	if errors.Is(err, tasks.ErrUnknown) {
		return nil, nil
	}
	return raw, err
}

// readable indents JSON, and cuts what is too long to read.
func readable(raw json.RawMessage) (text string, cut bool) {
	if len(raw) > shownBytes {
		return string(bytes.ToValidUTF8(raw[:shownBytes], []byte("\uFFFD"))), true
	}
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw), false
	}
	return b.String(), false
}

// download serves the whole result of a node.
func (s *site) download(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), webui.AskTime)
	defer cancel()
	raw, err := s.result(ctx, r.PathValue("id"), r.PathValue("node"))
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", `attachment; filename="result.json"`)
	h.Set("Content-Length", strconv.Itoa(len(raw)))
	_, _ = w.Write(raw)
}
