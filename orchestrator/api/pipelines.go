package api

import (
	"context"
	"net/http"
	"time"

	"muster/jobs/pipeline"
	"muster/orchestrator/access"
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

// PipelineStage is what is done with a job or with each of its items.
type PipelineStage struct {
	Name       string            `json:"name"`
	Role       string            `json:"role,omitempty" doc:"of the agents that do it"`
	Task       string            `json:"task,omitempty" doc:"the Go task that does it"`
	Takes      string            `json:"takes" enum:"job,item"`
	States     map[string]string `json:"states,omitempty" doc:"what each verdict leads to"`
	Timeout    string            `json:"timeout,omitempty" doc:"of one assignment"`
	MaxRetries *int              `json:"max_retries,omitempty" minimum:"0" doc:"how often an item that failed is retried"`
	Review     bool              `json:"review,omitempty" doc:"what has failed for the last time waits for a person"`
}

func pipelineView(p *pipeline.Pipeline) Pipeline {
	v := Pipeline{Name: p.Name, Description: p.Description, StuckAfter: duration(p.StuckAfter), Timeout: duration(p.Timeout), Labels: p.Labels, Context: p.Context}
	for _, st := range p.Stages {
		v.Stages = append(v.Stages, PipelineStage{
			Name: st.Name, Role: st.Role, Task: st.Task, Takes: st.Takes, States: st.States, Timeout: duration(st.Timeout), MaxRetries: st.MaxRetries, Review: st.Review,
		})
	}
	v.Stages = orEmpty(v.Stages)
	return v
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

type pipelinesOutput struct {
	Body struct {
		Pipelines []Pipeline `json:"pipelines"`
	} `nameHint:"PipelineList"`
}

type pipelineInput struct {
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"name of the pipeline" example:"default"`
}

type pipelineOutput struct{ Body Pipeline }

// addPipelines adds what reads pipelines.
func addPipelines(s *server) {
	op := describe(s, http.MethodGet, "/pipelines", "listPipelines", tagPipeline, "List the pipelines")
	needs(&op, access.Viewer, access.Agent)
	route(s, op, 0, func(context.Context, *nothing) (*pipelinesOutput, error) {
		out := &pipelinesOutput{}
		out.Body.Pipelines = []Pipeline{}
		for _, p := range s.cfg.Pipelines.List() {
			out.Body.Pipelines = append(out.Body.Pipelines, pipelineView(p))
		}
		return out, nil
	})
	op = describe(s, http.MethodGet, "/pipelines/{name}", "getPipeline", tagPipeline, "Get a pipeline", http.StatusNotFound)
	needs(&op, access.Viewer, access.Agent)
	route(s, op, 0, func(_ context.Context, in *pipelineInput) (*pipelineOutput, error) {
		p, err := s.cfg.Pipelines.Get(in.Name)
		if err != nil {
			return nil, problem(http.StatusNotFound, "%v", err)
		}
		return &pipelineOutput{pipelineView(p)}, nil
	})
}
