package main

import (
	"fmt"
	"slices"
	"strings"

	"muster/orchestrator/api/client"
	"muster/sites"
	"muster/sites/report"
)

// listHealth prints the last scrape of each site, compared with its scrapes of the seven days before.
func listHealth(s scope) error {
	states, err := client.All(s.ctx, s.api, client.ListSites, client.None{}, 0)
	if err != nil {
		return err
	}
	return showPage(s, healthOf(states), "No site has a finished scrape", "SITE HEALTH SUCCESS ERRORS RECORDS AT WHY BLOCKED RESPONSE", func(h report.Health) []any {
		share := func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) }
		return []any{h.Site, h.Status, share(h.Success), share(h.Errors), h.Records, h.At.Format("01-02 15:04"),
			strings.Join(slices.Concat(h.Alerts, h.Notices), "; "), share(h.Blocks), fmt.Sprintf("%.0f ms", h.Mean)}
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
