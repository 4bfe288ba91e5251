package api

import (
	"context"
	"net/http"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

type daysOutput struct {
	Body struct {
		Days []jobs.Day `json:"days" doc:"the newest first, in UTC"`
	} `nameHint:"DailyStatistics"`
}

// addNumbers adds the daily statistics.
func addNumbers(s *server) {
	implement(s, client.ListJobDays, func(ctx context.Context, in *client.DayFilter) (client.Page[jobs.Day], error) {
		return pageOf(s.cfg.Jobs.Daily(ctx, in.Days))
	})
	op := describe(s, http.MethodGet, "/stats/daily", "getDailyStatistics", tagState, "Count the jobs of each day, by status")
	route(s, op, 0, func(ctx context.Context, in *client.DayFilter) (*daysOutput, error) {
		days, err := s.cfg.Jobs.Daily(ctx, in.Days)
		if err != nil {
			return nil, err
		}
		out := &daysOutput{}
		out.Body.Days = orEmpty(days)
		return out, nil
	})
}

// orEmpty returns an empty list for nil, so that it is [] in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
