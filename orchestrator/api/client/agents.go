package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"muster/jobs/agent"
)

// Agents lists the agents.
func (c *Client) Agents(ctx context.Context) ([]agent.Agent, error) {
	return all[agent.Agent](ctx, c, "/v1/agents", nil, 0)
}

// AgentActivity returns the work of agents by hour, 1 to 24 hours, the newest first.
func (c *Client) AgentActivity(ctx context.Context, hours int) ([]agent.Activity, error) {
	return all[agent.Activity](ctx, c, "/v1/agents/activity", url.Values{"hours": {strconv.Itoa(hours)}}, 0)
}

// PauseAgent gives an agent no new work until ResumeAgent. It completes the assignments that it holds.
func (c *Client) PauseAgent(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, "/v1/agents/"+url.PathEscape(id)+"/pause", nil, nil, nil)
}

// ResumeAgent resumes a paused agent.
func (c *Client) ResumeAgent(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, "/v1/agents/"+url.PathEscape(id)+"/resume", nil, nil, nil)
}

// DeleteAgent deletes an agent. Its work goes to others.
func (c *Client) DeleteAgent(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/agents/"+url.PathEscape(id), nil, nil, nil)
}
