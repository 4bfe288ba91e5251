package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// The priorities that have names. A step is worth a minute of waiting.
var namedPriorities = map[string]int{"high": 100, "normal": 0, "low": -100}

// priorityOf reads a priority: a number, or one of high, normal and low.
func priorityOf(text string) (int, error) {
	if n, ok := namedPriorities[text]; ok {
		return n, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -100 || n > 100 {
		return 0, usageError{fmt.Errorf("--priority %q: use high, normal, low or a number from -100 to 100", text)}
	}
	return n, nil
}

// oneOf checks the value of a flag that has few.
func oneOf[T ~string](flag, value string, values []T) error {
	if value == "" || slices.Contains(values, T(value)) {
		return nil
	}
	known := make([]string, len(values))
	for i, v := range values {
		known[i] = string(v)
	}
	return usageError{fmt.Errorf("--%s %q%s: use one of %s", flag, value, suggest(value, known), strings.Join(known, ", "))}
}

// missingFile names a document that does not exist.
func missingFile(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("document not found: %s", path)
	}
	return err
}
