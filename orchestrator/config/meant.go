package config

import (
	"fmt"

	"muster/internal/nearest"
)

// renamed says what became of the section dashboard.
const renamed = "; the section dashboard is called api now, and listens at port 8000"

// alertsMoved says what became of the setting sites.alerts.
const alertsMoved = "; the health of sites is an event now: send site.unhealthy and site.recovered to an endpoint of webhooks.static, or of muster webhooks create"

// meant is ", did you mean …?" when one of words is like word, else empty.
func meant(word string, words []string) string {
	if near := nearest.Word(word, words); near != "" {
		return fmt.Sprintf(", did you mean %s?", near)
	}
	return ""
}
