package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
)

// wantUsage checks that err is a usage error that contains the given texts.
func wantUsage(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want wrong usage with %q", what, err, text)
	}
}

func TestPriorityIsANameOrANumber(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"high": 100, "normal": 0, "low": -100, "7": 7, "-100": -100, "100": 100, "+5": 5} {
		if got, err := priorityOf(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "urgent", "101", "-101", "1.5", "9999999999999999999"} {
		_, err := priorityOf(text)
		wantUsage(t, text, err, "high, normal, low or a number")
	}
}

func TestTimeIsATimeOrADuration(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h":                        now.Add(2 * time.Hour),
		"0s":                        now,
		"90m":                       now.Add(90 * time.Minute),
		"2027-01-31T15:04:05Z":      time.Date(2027, 1, 31, 15, 4, 5, 0, time.UTC),
		"2027-01-31":                time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC),
		"2027-01-31T15:04:05+02:00": time.Date(2027, 1, 31, 13, 4, 5, 0, time.UTC),
	} {
		if got, err := timeOf("--at", text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "-2h", "tomorrow", "2027-01", "15:04"} {
		_, err := timeOf("--at", text, now)
		wantUsage(t, text, err, "--at "+`"`+text+`": use a time such as 2026-11-23T12:00:00Z, a date, or a duration`)
	}
}

func TestContextIsAnObject(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "context.json")
	testutil.Ok(t, os.WriteFile(file, []byte(" {\"a\": 1}\n"), 0o600))
	for text, want := range map[string]string{`{"a":{"b":[1]}}`: `{"a":{"b":[1]}}`, "{}": "{}", "@" + file: `{"a": 1}`} {
		if got, err := objectOf(environment{}, "context", text); err != nil || string(got) != want {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"{", "[]", "null", `"a"`, "1", "{}x", "context.json"} {
		_, err := objectOf(environment{}, "context", text)
		wantUsage(t, text, err, "the context is not")
	}
	if _, err := objectOf(environment{}, "context", "@"+file+".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is missing: got %v, want %v", err, os.ErrNotExist)
	}
}
