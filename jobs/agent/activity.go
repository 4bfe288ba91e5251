package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxHours is how many hours Activity can return.
const MaxHours = 24

// Activity is the work of an agent in an hour. Assignments count in the hour in which they ended.
type Activity struct {
	Hour           time.Time `json:"hour"` // its beginning, in UTC
	Agent          string    `json:"agent"`
	Name           string    `json:"name"`        // the id, of an agent that is gone
	Assignments    int64     `json:"assignments"` // that ended, however
	Failed         int64     `json:"failed"`      // of them: neither completed nor released
	Requests       int64     `json:"requests"`    // as the agent reported them
	Tokens         int64     `json:"tokens"`      // as the agent reported them
	AverageSeconds float64   `json:"average_seconds"`
}

// Activity returns the work of each agent in each of the last hours, up to MaxHours, the newest first; hours without
// anything are left out. It reads counters, never the assignments.
func (s *Service) Activity(ctx context.Context, hours int) ([]Activity, error) {
	if hours < 1 || hours > MaxHours {
		return nil, bad("hours", "%d is not within 1 and %d", hours, MaxHours)
	}
	all, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, a := range all {
		names[a.ID] = a.Name
	}
	first := now.UTC().Truncate(time.Hour)
	got := make([]*redis.MapStringStringCmd, hours)
	if _, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range got {
			got[i] = p.HGetAll(ctx, s.keys.hour(first.Add(-time.Duration(i)*time.Hour)))
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the activity of agents: %w", err)
	}
	var out []Activity
	for i, fields := range got {
		out = append(out, activityOf(first.Add(-time.Duration(i)*time.Hour), fields.Val(), names)...)
	}
	return out, nil
}

// activityOf decodes the hash of an hour, by the names of agents.
func activityOf(hour time.Time, fields map[string]string, names map[string]string) []Activity {
	agents := map[string]*Activity{}
	millis := map[string]int64{}
	for field, text := range fields {
		id, what, ok := strings.Cut(field, " ")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		if agents[id] == nil {
			agents[id] = &Activity{Hour: hour, Agent: id, Name: cmp.Or(names[id], id)}
		}
		a := agents[id]
		switch what {
		case "assignments":
			a.Assignments = n
		case "failed":
			a.Failed = n
		case "requests":
			a.Requests = n
		case "tokens":
			a.Tokens = n
		case "ms":
			millis[id] = n
		}
	}
	out := make([]Activity, 0, len(agents))
	for id, a := range agents {
		if a.Assignments > 0 {
			a.AverageSeconds = float64(millis[id]) / 1000 / float64(a.Assignments)
		}
		out = append(out, *a)
	}
	slices.SortFunc(out, func(a, b Activity) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Agent, b.Agent))
	})
	return out
}
