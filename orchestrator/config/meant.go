package config

import (
	"fmt"

	"muster/internal/nearest"
)

// renamed says what became of the section dashboard.
const renamed = "; the section dashboard is called api now, and listens at port 8000"

// meant is ", did you mean …?" when one of words is like word, else empty.
func meant(word string, words []string) string {
	if near := nearest.Word(word, words); near != "" {
		return fmt.Sprintf(", did you mean %s?", near)
	}
	return ""
}
