package api

import (
	"context"
	"net/http"
	"time"

	"muster/jobs/pipeline"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

func pipelineView(p *pipeline.Pipeline) client.Pipeline {
	v := client.Pipeline{Name: p.Name, Description: p.Description, StuckAfter: duration(p.StuckAfter), Timeout: duration(p.Timeout), Labels: p.Labels, Context: p.Context}
	for _, st := range p.Stages {
		v.Stages = append(v.Stages, client.PipelineStage{
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

type pipelineInput struct {
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"name of the pipeline" example:"default"`
}

// addPipelines adds the operations that read pipelines.
func addPipelines(s *server) {
	op := describe(s, http.MethodGet, "/v1/pipelines", "listPipelines", tagPipeline, "List the pipelines")
	needs(&op, access.Viewer, access.Agent)
	route(s, op, 0, body(func(context.Context, *nothing) (client.Page[client.Pipeline], error) {
		var list []client.Pipeline
		for _, p := range s.cfg.Pipelines.List() {
			list = append(list, pipelineView(p))
		}
		return pageOf(list, nil)
	}))
	op = describe(s, http.MethodGet, "/v1/pipelines/{name}", "getPipeline", tagPipeline, "Get a pipeline", http.StatusNotFound)
	needs(&op, access.Viewer, access.Agent)
	route(s, op, 0, body(func(_ context.Context, in *pipelineInput) (out client.Pipeline, err error) {
		p, err := s.cfg.Pipelines.Get(in.Name)
		if err != nil {
			return out, problem(http.StatusNotFound, "%v", err)
		}
		return pipelineView(p), nil
	}))
}
