package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// maxContext limits the size of a context file in bytes; the service has
// a separate limit.
const maxContext = 16 << 20

// contextOf reads a context: JSON, or the file after an @.
func contextOf(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	raw := []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read the context: %w", err)
		}
		defer f.Close()
		if raw, err = io.ReadAll(io.LimitReader(f, maxContext+1)); err != nil {
			return nil, fmt.Errorf("read the context: %w", err)
		}
		if len(raw) > maxContext {
			return nil, fmt.Errorf("read the context: %s has more than %d MiB", file, maxContext>>20)
		}
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(raw, &object)
	if err == nil && object == nil {
		err = errors.New("null is not an object")
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("error parsing context JSON: %w; --context takes an object such as '{\"customer\": \"acme\"}', or @FILE", err)}
	}
	return bytes.TrimSpace(raw), nil
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
