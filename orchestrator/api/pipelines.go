package api

import (
	"context"
	"net/http"
	"time"

	"muster/jobs/pipeline"
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

// addPipelines adds the operations that read pipelines.
func addPipelines(s *server) {
	implement(s, client.ListPipelines, func(context.Context, *client.None) (client.Page[client.Pipeline], error) {
		var list []client.Pipeline
		for _, p := range s.cfg.Pipelines.List() {
			list = append(list, pipelineView(p))
		}
		return pageOf(list, nil)
	})
	implement(s, client.GetPipeline, func(_ context.Context, in *client.PipelinePath) (out client.Pipeline, err error) {
		p, err := s.cfg.Pipelines.Get(in.Name)
		if err != nil {
			return out, problem(http.StatusNotFound, "%v", err)
		}
		return pipelineView(p), nil
	})
}
