package config

import (
	"fmt"

	"muster/internal/nearest"
)

// renamed is the hint for the former section dashboard.
const renamed = "; the section dashboard was renamed to api, and the default port is 8000"

// alertsMoved is the hint for the former setting sites.alerts.
const alertsMoved = "; use webhooks for the events site.unhealthy and site.recovered instead, with webhooks.static or muster webhooks create"

// meant returns ", did you mean …?" for the member of words that is similar to word, or "".
func meant(word string, words []string) string {
	if near := nearest.Word(word, words); near != "" {
		return fmt.Sprintf(", did you mean %s?", near)
	}
	return ""
}
