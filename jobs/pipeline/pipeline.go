// Package pipeline has the definitions of pipelines: the stages that a job
// goes through, and who does the work of each.
//
// A pipeline is a YAML file, read strictly. A job keeps the pipeline that it was created with, whatever becomes of the file.
package pipeline

import "time"

// Default is the name of the pipeline of jobs that name none.
const Default = "default"

// The input of a stage.
const (
	TakesJob  = "job"  // the job, once; it may emit items while it works
	TakesItem = "item" // each item, as soon as it is there
)

// The states that a verdict on an item leads to; see Stage.States.
const (
	Integrated = "integrated"
	Rejected   = "rejected"
)

//go:generate go test -run TestKeysPage -update .

// Pipeline is a named list of stages.
//
// A stage that takes items processes the items of the earlier stages while these still run. A stage that takes the
// job starts when all earlier stages have ended.
type Pipeline struct {
	Name        string        `yaml:"name" json:"name"`
	Description string        `yaml:"description" json:"description,omitempty"`
	Stages      []Stage       `yaml:"stages" json:"stages"`
	StuckAfter  time.Duration `yaml:"stuck_after" json:"stuck_after,omitempty"` // without progress; 0: the setting jobs.stuck_after
	Timeout     time.Duration `yaml:"timeout" json:"timeout,omitempty"`         // of a job; 0: the setting jobs.timeout
	Labels      []string      `yaml:"labels" json:"labels,omitempty"`           // booleans that items may carry and reports count
	Context     []string      `yaml:"context" json:"context,omitempty"`         // keys of a job's context by which jobs can be found, or AnyContext
}

// AnyContext in Pipeline.Context declares the first 50 keys of each context.
const AnyContext = "*"

// Stage is a step of work on a job or on each of its items.
type Stage struct {
	Name       string            `yaml:"name" json:"name"`
	Role       string            `yaml:"role" json:"role,omitempty"` // of the agents that do it; or
	Task       string            `yaml:"task" json:"task,omitempty"` // the Go task that does it
	Takes      string            `yaml:"takes" json:"takes"`         // TakesJob or TakesItem
	States     map[string]string `yaml:"states" json:"states,omitempty"`
	Timeout    time.Duration     `yaml:"timeout" json:"timeout,omitempty"`         // of one assignment. Defaults to 10 minutes for items, an hour for jobs
	MaxRetries *int              `yaml:"max_retries" json:"max_retries,omitempty"` // nil: the setting jobs.max_retries
	Review     bool              `yaml:"review" json:"review,omitempty"`           // items that failed for the last time wait for a review
}

// Worker returns the role of the stage, or "task:" and its task.
func (s Stage) Worker() string {
	if s.Task != "" {
		return "task:" + s.Task
	}
	return s.Role
}

// Stage returns the stage with a name, or nil.
func (p *Pipeline) Stage(name string) *Stage {
	for i := range p.Stages {
		if p.Stages[i].Name == name {
			return &p.Stages[i]
		}
	}
	return nil
}
