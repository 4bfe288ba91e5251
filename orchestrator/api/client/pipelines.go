package client

import "net/http"

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

// PipelinePath is the path of a pipeline.
type PipelinePath struct {
	Name string `path:"name" maxLength:"100" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$" doc:"name of the pipeline" example:"default"`
}

// Operations on pipelines.
var (
	ListPipelines = Declare[None, Page[Pipeline]]("GET /v1/pipelines", "listPipelines", "pipelines", "List the pipelines", forReaders)
	GetPipeline   = Declare[PipelinePath, Pipeline]("GET /v1/pipelines/{name}", "getPipeline", "pipelines", "Get a pipeline", forReaders, Fails(http.StatusNotFound))
)
