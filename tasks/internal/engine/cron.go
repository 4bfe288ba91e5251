package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// parser reads five fields or six with leading seconds, and descriptors such as @hourly.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// maxEvery is the longest time between ticks of @every.
const maxEvery = 87600 * time.Hour

// ParseSpec parses the spec of a schedule. The ticks of the result depend only on the spec, so that all workers compute the same ones.
func ParseSpec(spec string) (cron.Schedule, error) {
	when, err := readSpec(strings.TrimSpace(spec))
	if err == nil && when.Next(time.Now()).IsZero() {
		err = errors.New("no date matches")
	}
	if err != nil {
		return nil, fmt.Errorf("spec %.200q: %w", spec, err)
	}
	return when, nil
}

func readSpec(spec string) (cron.Schedule, error) {
	loc := time.UTC
	if zone, ok := cutAny(spec, "CRON_TZ=", "TZ="); ok {
		zone, rest, _ := strings.Cut(zone, " ")
		var err error
		if loc, err = namedZone(zone); err != nil {
			return nil, err
		}
		spec = strings.TrimSpace(rest)
	}
	switch {
	case spec == "":
		return nil, errors.New("no times; use a cron expression, @every 90s or @daily")
	case strings.HasPrefix(spec, "@every"):
		d, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(spec, "@every")))
		if err != nil || d < 10*time.Millisecond || d > maxEvery || d%time.Millisecond != 0 {
			return nil, errors.New("expected @every and a duration of at least 10ms and at most 87600h in whole milliseconds, as in @every 90s")
		}
		return inZone{interval(d), loc}, nil
	}
	when, err := parser.Parse(sundays(spec))
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
		return inZone{wall{fields, loc}, loc}, nil
	}
	return inZone{fields, loc}, nil
}

// namedZone returns the time zone with this name. Local is none: it differs between machines.
func namedZone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || loc == time.Local {
		return nil, fmt.Errorf("unknown time zone %q; use an IANA name such as Europe/Berlin", name)
	}
	return loc, nil
}

// sundays replaces 7 in the weekdays of spec by 0, the number of Sunday that the parser knows.
func sundays(spec string) string {
	at := strings.LastIndexAny(spec, " \t") + 1
	days := strings.Split(spec[at:], ",")
	for i, day := range days {
		span, step, _ := strings.Cut(day, "/")
		from, to, ranged := strings.Cut(span, "-")
		first, err := strconv.Atoi(from)
		by, stepErr := strconv.Atoi(cmp.Or(step, "1"))
		if ranged && to != "7" || !ranged && from != "7" || errors.Join(err, stepErr) != nil || first < 0 || first > 7 || by < 1 {
			continue
		}
		var each []string
		for d := first; d <= 7; d += by {
			each = append(each, strconv.Itoa(d%7))
		}
		days[i] = strings.Join(each, ",")
	}
	return spec[:at] + strings.Join(days, ",")
}

func cutAny(s string, prefixes ...string) (rest string, ok bool) {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(s, p); ok {
			return rest, true
		}
	}
	return s, false
}

// inZone returns the ticks of times in the zone loc.
type inZone struct {
	times cron.Schedule
	loc   *time.Location
}

// Next implements cron.Schedule.
func (s inZone) Next(t time.Time) time.Time {
	next := s.times.Next(t)
	if next.IsZero() { // cron searches five years, and 29 February can be eight years away
		next = s.times.Next(t.AddDate(5, 0, 0))
	}
	return next.In(s.loc)
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

// wall ticks at given hours of local time, once a day: on a day on which the hour occurs twice at the second of them, and on a
// day on which it is skipped later by as much as the clocks are advanced, or earlier if later is the next day.
type wall struct {
	fields *cron.SpecSchedule // in UTC, as if that were the local time
	loc    *time.Location
}

// Next implements cron.Schedule.
func (w wall) Next(t time.Time) (next time.Time) {
	// Near a change of the clocks the order of the ticks can differ from the order of the times in the spec.
	for shown := shownAt(t.In(w.loc)).Add(-change(t.In(w.loc))); ; {
		if shown = w.fields.Next(shown); shown.IsZero() {
			return next
		}
		if at := w.at(shown); at.After(t) && (next.IsZero() || at.Before(next)) {
			next = at
		}
		if !next.IsZero() && !shown.Before(shownAt(next).Add(change(next))) {
			return next
		}
	}
}

// at returns the time of the tick for which local clocks should show the time that shown has in UTC.
func (w wall) at(shown time.Time) time.Time {
	at := time.Date(shown.Year(), shown.Month(), shown.Day(), shown.Hour(), shown.Minute(), shown.Second(), 0, w.loc)
	if later := shown.Add(-offset(at)).In(w.loc); later.After(at) { // the time is skipped, and Date has chosen the earlier one
		at = later
	}
	if _, end := at.ZoneBounds(); !end.IsZero() {
		if second := shown.Add(-offset(end)).In(w.loc); !second.Before(end) { // the time occurs twice
			return second
		}
	}
	if at.Day() != shown.Day() {
		return shown.Add(-offset(at)).In(w.loc)
	}
	return at
}

// shownAt returns the time in UTC that has the date and the time of day of t.
func shownAt(t time.Time) time.Time { return t.Add(offset(t)).UTC() }

// offset returns how much the clocks at t are ahead of UTC.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// change returns the length of the time that clocks skip or repeat within a day of t.
func change(t time.Time) time.Duration {
	var length time.Duration
	start, end := t.ZoneBounds()
	if !start.IsZero() && t.Sub(start) < 24*time.Hour {
		length = (offset(t) - offset(start.Add(-1))).Abs()
	}
	if !end.IsZero() && end.Sub(t) < 24*time.Hour {
		length = max(length, (offset(end) - offset(t)).Abs())
	}
	return length
}
