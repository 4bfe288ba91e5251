package client

import (
	"context"
	"net/http"
	"net/url"
)

// Pipeline is a named list of stages.
type Pipeline struct {
	Name        string          `json:"name" example:"default"`
	Description string          `json:"description,omitempty"`
	Stages      []PipelineStage `json:"stages"`
	StuckAfter  string          `json:"stuck_after,omitempty" doc:"a duration without progress"`
	Timeout     string          `json:"timeout,omitempty" doc:"of a job"`
	Labels      []string        `json:"labels,omitempty" doc:"booleans that items may carry"`
	Context     []string        `json:"context,omitempty" doc:"keys of the context by which jobs can be found"`
}

// PipelineStage is a step of a pipeline, which takes the job or each of its items.
type PipelineStage struct {
	Name       string            `json:"name"`
	Role       string            `json:"role,omitempty" doc:"of the agents that do it"`
	Task       string            `json:"task,omitempty" doc:"the Go task that does it"`
	Takes      string            `json:"takes" enum:"job,item"`
	States     map[string]string `json:"states,omitempty" doc:"state of the item by verdict"`
	Timeout    string            `json:"timeout,omitempty" doc:"of one assignment"`
	MaxRetries *int              `json:"max_retries,omitempty" minimum:"0" doc:"how often an item that failed is retried"`
	Review     bool              `json:"review,omitempty" doc:"failed items wait for a decision by a person"`
}

// Pipelines lists the pipelines.
func (c *Client) Pipelines(ctx context.Context) ([]Pipeline, error) {
	return all[Pipeline](ctx, c, "/v1/pipelines", nil, 0)
}

// Pipeline returns a pipeline.
func (c *Client) Pipeline(ctx context.Context, name string) (p Pipeline, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/pipelines/"+url.PathEscape(name), nil, nil, &p)
	return p, err
}
