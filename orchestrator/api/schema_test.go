package api

import (
	"fmt"
	"strings"
	"testing"

	"muster/jobs"
	"muster/jobs/agent"
)

// The schema allows a value if the service does: its limits are the constants of the services.
func TestLimitsOfTheSchemaAreThoseOfTheServices(t *testing.T) {
	t.Parallel()
	o := readSpec(t)
	for place, want := range map[string]int{
		"NewJob/properties/prompt/maxLength": jobs.MaxPrompt, "NewJob/properties/priority/maximum": jobs.MaxPriority, "NewJob/properties/priority/minimum": -jobs.MaxPriority,
		"NewJob/properties/labels/maxItems": jobs.MaxLabels, "NewJob/properties/labels/items/maxLength": jobs.MaxLabel, "NewJob/properties/after/maxItems": jobs.MaxAfter,
		"JobEdit/properties/priority/maximum": jobs.MaxPriority, "JobEdit/properties/priority/minimum": -jobs.MaxPriority,
		"JobEdit/properties/labels/maxItems": jobs.MaxLabels, "JobEdit/properties/labels/items/maxLength": jobs.MaxLabel,
		"JobRetry/properties/keys/maxItems": jobs.MaxItems, "JobRetry/properties/keys/items/maxLength": jobs.MaxKey,
		"Decisions/properties/keys/maxItems": jobs.MaxItems, "Decisions/properties/keys/items/maxLength": jobs.MaxKey,
		"NewItems/properties/items/maxItems": jobs.MaxItems, "Completion/properties/items/maxItems": jobs.MaxItems, "NewItem/properties/key/maxLength": jobs.MaxKey,
		"NewAgent/properties/name/maxLength": agent.MaxName, "NewAgent/properties/roles/maxItems": agent.MaxRoles,
		"NewAgent/properties/capacity/maximum": agent.MaxCapacity, "NewAgent/properties/url/maxLength": agent.MaxURL,
		"LeaseRequest/properties/max/maximum": agent.MaxLease, "LeaseRequest/properties/wait_seconds/maximum": int(agent.MaxWait.Seconds()),
	} {
		got := o.resolve("#/components/schemas/" + place)
		if fmt.Sprint(got) != fmt.Sprint(float64(want)) {
			t.Errorf("%s: got %v, want %d as in the service", strings.ReplaceAll(place, "/properties/", "."), got, want)
		}
	}
}
