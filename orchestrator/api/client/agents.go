package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"muster/jobs/agent"
)

// AgentDrain pauses or resumes the assignment of work to an agent.
type AgentDrain struct {
	On *bool `json:"on,omitempty" doc:"false: the agent gets work again. Defaults to true."`
}

// Agents lists the agents.
func (c *Client) Agents(ctx context.Context) ([]agent.Agent, error) {
	return all[agent.Agent](ctx, c, "/v1/agents", nil, 0)
}

// AgentActivity returns the work of agents by hour, 1 to 24 hours, the newest first.
func (c *Client) AgentActivity(ctx context.Context, hours int) ([]agent.Activity, error) {
	return all[agent.Activity](ctx, c, "/v1/agents/activity", url.Values{"hours": {strconv.Itoa(hours)}}, 0)
}

// DrainAgent stops the assignment of work to an agent, or allows it again. The agent completes the work that it holds.
func (c *Client) DrainAgent(ctx context.Context, id string, on bool) (a agent.Agent, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/agents/"+url.PathEscape(id)+"/drain", nil, AgentDrain{On: &on}, &a)
	return a, err
}

// RemoveAgent removes an agent. Its work goes to others.
func (c *Client) RemoveAgent(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/agents/"+url.PathEscape(id), nil, nil, nil)
}
