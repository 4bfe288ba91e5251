package config

import (
	"fmt"

	"muster/internal/nearest"
)

// meant is ", did you mean …?" when one of words is like word, else empty.
func meant(word string, words []string) string {
	if near := nearest.Word(word, words); near != "" {
		return fmt.Sprintf(", did you mean %s?", near)
	}
	return ""
}
