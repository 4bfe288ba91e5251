package ui

import (
	"context"
	"net/http"

	"muster/internal/webui"
)

// pipelines lists the pipelines.
func (c jobPages) pipelines(context.Context, *http.Request) (webui.View, error) {
	return webui.View{Name: "Pipelines", At: pipelinesAt, Data: c.Pipelines.List()}, nil
}

// pipeline shows the stages of a pipeline.
func (c jobPages) pipeline(_ context.Context, r *http.Request) (webui.View, error) {
	p, err := c.Pipelines.Get(r.PathValue("pipeline"))
	if err != nil {
		return webui.View{}, webui.NotFound(webui.Plain(err.Error()))
	}
	return webui.View{Name: "Pipeline " + p.Name, At: pipelinesAt, Data: p}, nil
}
