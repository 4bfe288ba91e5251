package report

import (
	"cmp"
	"crypto/sha256"
	"time"

	"muster/jobs"
)

// Bounds of a summary.
const (
	maxIDs       = 1000    // of integrated items
	maxCitations = 100     // ids of citations
	maxUnique    = 100_000 // distinct citations
	maxNames     = 1000    // agents, and labels
)

// otherNames is the name for all agents, or all labels, beyond maxNames.
const otherNames = "(others)"

// The stages whose states the summary gives by the names of their roles too.
const (
	stageCreate   = "create"
	stageValidate = "validate"
)

// collector counts the items of a job.
type collector struct {
	Summary
	seen map[[16]byte]struct{} // the start of the SHA-256 of citations
}

func newCollector(j jobs.Job) *collector {
	c := &collector{seen: map[[16]byte]struct{}{}, Summary: Summary{
		JobID: j.ID, Kind: j.Kind, Name: j.Name, Prompt: j.Prompt, Status: j.Status, Stages: j.Stages,
		CreatedAt: j.CreatedAt, CompletedAt: j.CompletedAt,
		Items: j.Items, Usage: j.Usage, UsageByAgent: j.AgentUsage,
		ByLabel: map[string]int64{}, ByAgent: map[string]jobs.Counts{},
		Citations: Citations{IDs: []string{}}, IntegratedIDs: []string{},
		ErrorMessage: j.ErrorMessage, ErrorDetails: j.ErrorDetails,
	}}
	if c.Stages == nil {
		c.Stages = []jobs.Stage{}
	}
	if c.Usage == nil {
		c.Usage = map[string]int64{}
	}
	if c.UsageByAgent == nil {
		c.UsageByAgent = map[string]map[string]int64{}
	}
	for _, s := range j.Stages {
		switch s.Name {
		case stageCreate:
			c.CreatorStatus = s.Status
		case stageValidate:
			c.ValidatorStatus = s.Status
		}
	}
	end := j.CompletedAt
	if end.IsZero() {
		end = time.Now()
	}
	c.DurationSeconds = max(end.Sub(j.CreatedAt), 0).Seconds()
	if j.Document != nil {
		c.DocumentPath = j.Document.Name
	}
	switch {
	case j.Items.Total > 0:
		c.Percent = 100 * float64(j.Items.Processed()) / float64(j.Items.Total)
	case j.Status == jobs.Completed:
		c.Percent = 100
	}
	if j.Pipeline != nil {
		for _, label := range j.Pipeline.Labels {
			c.ByLabel[label] = 0
		}
	}
	return c
}

// add counts an item.
func (c *collector) add(it jobs.Item) {
	switch it.Priority {
	case "high":
		count(&c.ByPriority.High, it.Status)
	case "low":
		count(&c.ByPriority.Low, it.Status)
	default:
		count(&c.ByPriority.Medium, it.Status)
	}
	for label, on := range it.Labels {
		if on {
			c.ByLabel[bounded(c.ByLabel, label)]++
		}
	}
	if it.Agent != "" {
		name := bounded(c.ByAgent, it.Agent)
		counts := c.ByAgent[name]
		count(&counts, it.Status)
		c.ByAgent[name] = counts
	}
	for _, citation := range it.Citations {
		c.cite(citation)
	}
	if it.Status == jobs.ItemIntegrated && len(c.IntegratedIDs) < maxIDs {
		c.IntegratedIDs = append(c.IntegratedIDs, cmp.Or(it.ExternalID, it.Key))
	}
}

// count counts an item in its state.
func count(c *jobs.Counts, s jobs.ItemStatus) {
	c.Total++
	*c.Of(s)++
}

// bounded is the name under which something is counted.
func bounded[V any](m map[string]V, name string) string {
	if _, ok := m[name]; !ok && len(m) >= maxNames {
		return otherNames
	}
	return name
}

func (c *collector) cite(citation string) {
	c.Citations.Total++
	sum := sha256.Sum256([]byte(citation))
	key := [16]byte(sum[:16])
	if _, ok := c.seen[key]; ok {
		return
	}
	if len(c.seen) >= maxUnique {
		c.Citations.AtLeast = true
		return
	}
	c.seen[key] = struct{}{}
	c.Citations.Unique++
	if len(c.Citations.IDs) < maxCitations {
		c.Citations.IDs = append(c.Citations.IDs, citation)
	}
}
