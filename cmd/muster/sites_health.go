package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/report"
)

// listHealth prints the last scrape of each site, compared with its scrapes of the seven days before.
func listHealth(env environment) cli.ActionFunc {
	return onAPI(env, 0, 0, func(ctx context.Context, c *cli.Context, api *client.Client) error {
		states, err := client.All(ctx, api, client.ListSites, client.None{}, 0)
		if err != nil {
			return err
		}
		head := []string{"SITE", "HEALTH", "SUCCESS", "ERRORS", "BLOCKED", "RESPONSE", "RECORDS", "AT", "WHY"}
		return showPage(env, c, healthOf(states), "No site has a finished scrape", head, func(h report.Health) []string {
			share := func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
			return []string{h.Site, string(h.Status), share(h.Success), share(h.Errors), share(h.Blocks), fmt.Sprintf("%.0f ms", h.Mean),
				fmt.Sprint(h.Records), h.At.Format("01-02 15:04"), strings.Join(slices.Concat(h.Alerts, h.Notices), "; ")}
		}, "BLOCKED", "RESPONSE")
	})
}

// healthOf is the health of the sites that have one: the numbers of the last job that ended, the status and alerts of
// a later job too.
func healthOf(states []sites.State) []report.Health {
	list := []report.Health{}
	for _, st := range states {
		if st.Health == "" {
			continue
		}
		h := report.Health{Site: st.Site, JobID: st.Job.ID, At: st.Job.Began}
		if st.Last != nil {
			h = *st.Last
		}
		h.Status, h.Alerts = st.Health, st.Alerts
		list = append(list, h)
	}
	return list
}
