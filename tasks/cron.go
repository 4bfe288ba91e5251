package tasks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parser reads five fields or six with leading seconds, and descriptors such as @hourly.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// parseSpec parses the spec of an entry. The ticks of the result depend only on the spec and the location, so that
// all schedulers compute the same ones.
func parseSpec(spec string, loc *time.Location) (cron.Schedule, error) {
	when, err := readSpec(strings.TrimSpace(spec), loc)
	if err != nil {
		return nil, fmt.Errorf("spec %q: %w", spec, err)
	}
	return when, nil
}

func readSpec(spec string, loc *time.Location) (cron.Schedule, error) {
	if zone, ok := cutAny(spec, "CRON_TZ=", "TZ="); ok {
		zone, rest, _ := strings.Cut(zone, " ")
		var err error
		if loc, err = time.LoadLocation(zone); err != nil || zone == "" {
			return nil, fmt.Errorf("no time zone %q; use a name such as Europe/Berlin", zone)
		}
		spec = strings.TrimSpace(rest)
	}
	switch {
	case spec == "":
		return nil, errors.New("no times; use a cron expression, @every 90s or @daily")
	case strings.HasPrefix(spec, "@every"):
		d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(spec, "@every")))
		if err != nil || d < 10*time.Millisecond || d%time.Millisecond != 0 {
			return nil, errors.New("expected @every and a duration of at least 10ms in whole milliseconds, as in @every 90s")
		}
		return interval(d), nil
	}
	when, err := parser.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("%w; expected minute hour day month weekday, with seconds before them if you like", err)
	}
	fields, ok := when.(*cron.SpecSchedule)
	if !ok {
		return nil, errors.New("not a cron expression")
	}
	fields.Location = loc
	if fields.Hour&anyHour == 0 {
		fields.Location = time.UTC
		when = wall{fields, loc}
	}
	if when.Next(time.Now()).IsZero() {
		return nil, errors.New("no date matches")
	}
	return when, nil
}

func cutAny(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}

// zoned returns a spec with the time zone loc in it, for other programs.
func zoned(spec string, loc *time.Location) string {
	spec = strings.TrimSpace(spec)
	if _, ok := cutAny(spec, "CRON_TZ=", "TZ="); ok || loc == time.UTC || strings.HasPrefix(spec, "@every") {
		return spec
	}
	return "CRON_TZ=" + loc.String() + " " + spec
}

// interval ticks at the multiples of itself since the Unix epoch.
type interval time.Duration

// Next implements cron.Schedule.
func (i interval) Next(t time.Time) time.Time {
	every := int64(i)
	return time.Unix(0, (t.UnixNano()/every+1)*every)
}

// anyHour is the bit of a field that was given as *.
const anyHour = 1 << 63

// wall ticks at given hours of local time: once on a day on which the hour occurs twice, and once on a day on which it
// is skipped.
type wall struct {
	fields *cron.SpecSchedule // in UTC, as if that were the local time
	loc    *time.Location
}

// Next implements cron.Schedule.
func (w wall) Next(t time.Time) time.Time {
	l := t.In(w.loc)
	shown := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	// A time in a skipped hour is converted to the hour before or after it.
	for shown = shown.Add(-time.Hour); ; {
		if shown = w.fields.Next(shown); shown.IsZero() {
			return shown
		}
		at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, w.loc)
		if at.After(t) {
			return at
		}
	}
}

// NextTick returns the first time after t at which a schedule with this spec ticks, in UTC unless the spec names a
// time zone. See [Scheduler.AddFunc] for specs.
func NextTick(spec string, t time.Time) (time.Time, error) {
	when, err := parseSpec(spec, time.UTC)
	if err != nil {
		return time.Time{}, err
	}
	return when.Next(t), nil
}
