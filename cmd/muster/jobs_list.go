package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/sites"
)

func jobsListCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list the scrapes of the last week, of one site or of all", ArgsUsage: "[SITE]",
		Flags: []cli.Flag{&cli.IntFlag{Name: "limit", Usage: "at most `N`, the newest", Value: 50}, progressFlag(), jsonFlag()},
		Action: jobsAction(env, 0, 1, func(ctx context.Context, c *cli.Context, s *sites.Service) error {
			jobs, err := s.Jobs(ctx, c.Args().First(), c.Int("limit"))
			if err != nil {
				return err
			}
			return show(env, c, jobs, []string{"JOB", "SITE", "STATUS", "PAGES", "ERRORS", "RECORDS", "STARTED"}, func(j sites.Job) []string {
				return []string{j.ID, j.Site, statusOf(j), fmt.Sprintf("%d/%d", j.Pages.Done+j.Pages.Skipped, j.Pages.Total), fmt.Sprint(j.Pages.Error),
					fmt.Sprint(total(j.Records)), j.Began.Format("01-02 15:04:05")}
			})
		}),
	}
}

// total is the number of records of all types.
func total(byType map[string]int) int {
	n := 0
	for _, of := range byType {
		n += of
	}
	return n
}

// statusOf is the status of a job, with the sites whose jobs it waits for.
func statusOf(j sites.Job) string {
	if len(j.WaitsFor) > 0 {
		return j.Status + ", waits for " + strings.Join(j.WaitsFor, ", ")
	}
	return j.Status
}
