package tasks

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones that tests name, wherever they run
)

func TestSpecs(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02 15:04:05 MST"
	for _, c := range []struct {
		spec, zone, from string
		want             []string
	}{
		{"*/20 * * * * *", "UTC", "2026-03-01 10:00:05 UTC", []string{"2026-03-01 10:00:20 UTC", "2026-03-01 10:00:40 UTC", "2026-03-01 10:01:00 UTC"}},
		{"0 12 * * MON", "UTC", "2026-03-01 13:00:00 UTC", []string{"2026-03-02 12:00:00 UTC", "2026-03-09 12:00:00 UTC"}},
		{"CRON_TZ=America/New_York 30 6 * * *", "UTC", "2026-03-01 00:00:00 UTC", []string{"2026-03-01 11:30:00 UTC"}},
		{"30 6 * * *", "America/New_York", "2026-03-01 00:00:00 UTC", []string{"2026-03-01 11:30:00 UTC"}},
		{"@daily", "Asia/Tokyo", "2026-03-01 00:00:00 UTC", []string{"2026-03-01 15:00:00 UTC", "2026-03-02 15:00:00 UTC"}},
		{"@every 90s", "UTC", "2026-03-01 00:00:01 UTC", []string{"2026-03-01 00:01:30 UTC", "2026-03-01 00:03:00 UTC"}},
		{"CRON_TZ=Asia/Tokyo @every 90s", "UTC", "2026-03-01 00:00:01 UTC", []string{"2026-03-01 00:01:30 UTC"}},
		// In Berlin 2 to 3 o'clock came twice on 2026-10-25, and not at all on 2026-03-29.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00:00 UTC", []string{"2026-10-25 01:30:00 UTC", "2026-10-26 01:30:00 UTC"}},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00:00 UTC", []string{"2026-03-29 01:30:00 UTC", "2026-03-30 00:30:00 UTC"}},
		{"0 */2 * * *", "Europe/Berlin", "2026-10-24 21:00:00 UTC", []string{"2026-10-24 22:00:00 UTC", "2026-10-25 01:00:00 UTC", "2026-10-25 03:00:00 UTC"}},
		// A spec without a given hour ticks through both.
		{"0 * * * *", "Europe/Berlin", "2026-10-24 23:30:00 UTC", []string{"2026-10-25 00:00:00 UTC", "2026-10-25 01:00:00 UTC", "2026-10-25 02:00:00 UTC"}},
		{"0 * * * *", "Europe/Berlin", "2026-03-28 23:30:00 UTC", []string{"2026-03-29 00:00:00 UTC", "2026-03-29 01:00:00 UTC", "2026-03-29 02:00:00 UTC"}},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		when, err := parseSpec(c.spec, loc)
		if err != nil {
			t.Errorf("%s: got %v, want no error", c.spec, err)
			continue
		}
		at, err := time.Parse(layout, c.from)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if at = when.Next(at); at.UTC().Format(layout) != want {
				t.Errorf("%s in %s from %s: %s, expected %s", c.spec, c.zone, c.from, at.UTC().Format(layout), want)
				break
			}
		}
	}
}

func TestSpecsFromAnyMomentAgree(t *testing.T) {
	t.Parallel()
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{"30 2 * * *", "*/20 1-3 * * *", "0 * * * *", "15 3 * * *"} {
		when, err := parseSpec(spec, loc)
		if err != nil {
			t.Fatal(err)
		}
		for _, day := range []string{"2026-03-28", "2026-10-24"} {
			from, err := time.Parse(time.DateOnly, day)
			if err != nil {
				t.Fatal(err)
			}
			ticks := map[int64]bool{}
			for at := when.Next(from); at.Before(from.Add(72 * time.Hour)); at = when.Next(at) {
				ticks[at.Unix()] = true
			}
			for at := from; at.Before(from.Add(48 * time.Hour)); at = at.Add(7 * time.Minute) {
				if next := when.Next(at); !ticks[next.Unix()] {
					t.Errorf("%s: from %s got the tick %s, want one that schedulers that started earlier have, too", spec, at, next.UTC())
				}
			}
		}
	}
}

func TestBadSpecsAreTold(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":                             "no times",
		"TZ=UTC":                       "no times",
		"CRON_TZ=":                     "no time zone",
		"CRON_TZ=Nowhere/City * * * *": "no time zone",
		"* * *":                        "expected",
		"61 * * * *":                   "61",
		"* * * * FUNDAY":               "FUNDAY",
		"0 0 30 2 *":                   "no date matches",
		"@every":                       "@every 90s",
		"@every soon":                  "@every 90s",
		"@every 1us":                   "at least 10ms",
		"@every 10.5ms":                "whole milliseconds",
		"@every -5s":                   "at least",
		"@sometimes":                   "@sometimes",
	} {
		_, err := parseSpec(spec, time.UTC)
		if err == nil {
			t.Errorf("%q: got no error, want one", spec)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", spec, err, want)
		}
	}
}
