package main

import (
	"fmt"

	"muster/internal/nearest"
)

// suggest returns ", did you mean X?" when one of names is close to word.
func suggest(word string, names []string) string {
	if near := nearest.Word(word, names); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}
