package engine

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"muster/internal/testutil"
)

func TestSpecs(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02 15:04:05 MST"
	for _, c := range []struct {
		spec, from string
		want       []string
	}{
		{"*/20 * * * * *", "2026-03-01 10:00:05 UTC", []string{"2026-03-01 10:00:20 UTC", "2026-03-01 10:00:40 UTC", "2026-03-01 10:01:00 UTC"}},
		{"0 12 * * MON", "2026-03-01 13:00:00 UTC", []string{"2026-03-02 12:00:00 UTC", "2026-03-09 12:00:00 UTC"}},
		{"CRON_TZ=America/New_York 30 6 * * *", "2026-03-01 00:00:00 UTC", []string{"2026-03-01 11:30:00 UTC"}},
		{"CRON_TZ=Asia/Tokyo @daily", "2026-03-01 00:00:00 UTC", []string{"2026-03-01 15:00:00 UTC", "2026-03-02 15:00:00 UTC"}},
		{"@every 90s", "2026-03-01 00:00:01 UTC", []string{"2026-03-01 00:01:30 UTC", "2026-03-01 00:03:00 UTC"}},
		{"CRON_TZ=Asia/Tokyo @every 90s", "2026-03-01 00:00:01 UTC", []string{"2026-03-01 00:01:30 UTC"}},
		// In Berlin 2 to 3 o'clock came twice on 2026-10-25, and not at all on 2026-03-29.
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24 12:00:00 UTC", []string{"2026-10-25 01:30:00 UTC", "2026-10-26 01:30:00 UTC"}},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28 12:00:00 UTC", []string{"2026-03-29 01:30:00 UTC", "2026-03-30 00:30:00 UTC"}},
		{"CRON_TZ=Europe/Berlin 0 */2 * * *", "2026-10-24 21:00:00 UTC", []string{"2026-10-24 22:00:00 UTC", "2026-10-25 01:00:00 UTC", "2026-10-25 03:00:00 UTC"}},
		{"CRON_TZ=Europe/Berlin */15 2 * * *", "2026-03-28 12:00:00 UTC", []string{"2026-03-29 01:00:00 UTC", "2026-03-29 01:15:00 UTC", "2026-03-29 01:30:00 UTC", "2026-03-29 01:45:00 UTC", "2026-03-30 00:00:00 UTC"}},
		{"CRON_TZ=America/New_York 30 2 * * *", "2027-03-13 12:00:00 UTC", []string{"2027-03-14 07:30:00 UTC", "2027-03-15 06:30:00 UTC"}},
		{"CRON_TZ=America/Santiago 0 0 * * *", "2027-09-04 05:00:00 UTC", []string{"2027-09-05 04:00:00 UTC", "2027-09-06 03:00:00 UTC"}},
		{"CRON_TZ=America/Nuuk 30 23 * * *", "2027-03-27 12:00:00 UTC", []string{"2027-03-28 00:30:00 UTC", "2027-03-29 00:30:00 UTC"}},
		{"CRON_TZ=Australia/Lord_Howe 15,40 2 * * *", "2026-10-03 12:00:00 UTC", []string{"2026-10-03 15:40:00 UTC", "2026-10-03 15:45:00 UTC"}},
		{"CRON_TZ=Antarctica/Troll 0 2 * * *", "2028-03-26 01:55:00 UTC", []string{"2028-03-26 02:00:00 UTC", "2028-03-27 00:00:00 UTC"}},
		{"0 0 29 2 *", "2096-03-01 00:00:00 UTC", []string{"2104-02-29 00:00:00 UTC"}},
		{"* * 29 2 *", "2096-03-01 00:00:00 UTC", []string{"2104-02-29 00:00:00 UTC"}},
		{"0 0 * * 7", "2026-03-01 12:00:00 UTC", []string{"2026-03-08 00:00:00 UTC", "2026-03-15 00:00:00 UTC"}},
		{"0 0 * * 5-7/2", "2026-03-01 12:00:00 UTC", []string{"2026-03-06 00:00:00 UTC", "2026-03-08 00:00:00 UTC"}},
		{"0 0 * * MON,7", "2026-03-02 12:00:00 UTC", []string{"2026-03-08 00:00:00 UTC", "2026-03-09 00:00:00 UTC"}},
		// A spec without a given hour ticks through both.
		{"CRON_TZ=Europe/Berlin 0 * * * *", "2026-10-24 23:30:00 UTC", []string{"2026-10-25 00:00:00 UTC", "2026-10-25 01:00:00 UTC", "2026-10-25 02:00:00 UTC"}},
		{"CRON_TZ=Europe/Berlin 0 * * * *", "2026-03-28 23:30:00 UTC", []string{"2026-03-29 00:00:00 UTC", "2026-03-29 01:00:00 UTC", "2026-03-29 02:00:00 UTC"}},
	} {
		when, err := ParseSpec(c.spec)
		if err != nil {
			t.Errorf("%s: got %v, want no error", c.spec, err)
			continue
		}
		at, err := time.Parse(layout, c.from)
		testutil.Ok(t, err)
		for _, want := range c.want {
			if at = when.Next(at); at.UTC().Format(layout) != want {
				t.Errorf("%s from %s: %s, expected %s", c.spec, c.from, at.UTC().Format(layout), want)
				break
			}
		}
	}
}

// changing has zones whose clocks change in the two years after November 2026, with each way in which that happens.
const changing = `Africa/Cairo Africa/Casablanca Africa/Ceuta Africa/El_Aaiun America/Adak America/Anchorage America/Atka America/Boise America/Cambridge_Bay
	America/Chicago America/Ciudad_Juarez America/Denver America/Detroit America/Edmonton America/Ensenada America/Fort_Wayne America/Glace_Bay
	America/Godthab America/Goose_Bay America/Grand_Turk America/Halifax America/Havana America/Indiana/Indianapolis America/Indiana/Knox
	America/Indiana/Marengo America/Indiana/Petersburg America/Indiana/Tell_City America/Inuvik America/Juneau America/Knox_IN America/Los_Angeles
	America/Matamoros America/Menominee America/Metlakatla America/Miquelon America/Moncton America/Nome America/Nuuk America/Santa_Isabel
	America/Santiago America/Scoresbysund America/Sitka America/St_Johns America/Thule America/Tijuana America/Vancouver America/Yakutat
	Antarctica/Macquarie Antarctica/McMurdo Antarctica/South_Pole Antarctica/Troll Arctic/Longyearbyen Asia/Beirut Asia/Famagusta Asia/Gaza Asia/Hebron
	Asia/Jerusalem Asia/Nicosia Asia/Tel_Aviv Atlantic/Azores Atlantic/Bermuda Atlantic/Canary Atlantic/Faeroe Atlantic/Faroe Atlantic/Jan_Mayen
	Atlantic/Madeira Australia/ACT Australia/Adelaide Australia/Broken_Hill Australia/Canberra Australia/Currie Australia/Hobart Australia/LHI
	Australia/Lord_Howe Australia/Melbourne Australia/South Australia/Yancowinna Europe/Amsterdam Europe/Andorra Europe/Athens Europe/Belfast
	Europe/Belgrade Europe/Bucharest Europe/Chisinau Europe/Helsinki Europe/Tiraspol Pacific/Auckland Pacific/Chatham Pacific/Easter Pacific/Norfolk`

func TestEachDayHasOneTick(t *testing.T) {
	t.Parallel()
	for _, zone := range strings.Fields(changing) {
		loc, err := time.LoadLocation(zone)
		testutil.Ok(t, err)
		first := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC).In(loc)
		for _, change := first.ZoneBounds(); change.Before(first.AddDate(2, 0, 0)); _, change = change.ZoneBounds() {
			for at := change.Add(-3 * time.Hour); at.Before(change.Add(3 * time.Hour)); at = at.Add(15 * time.Minute) {
				oneTickADay(t, loc, change, at.In(loc).Format("4 15 * * *"))
			}
			ticksAgree(t, loc, change, "0,35 0-3,22,23 * * *")
		}
	}
}

// oneTickADay wants a tick of spec on each of three days around a change of the clocks.
func oneTickADay(t *testing.T, loc *time.Location, change time.Time, spec string) {
	t.Helper()
	when, err := ParseSpec("CRON_TZ=" + loc.String() + " " + spec)
	testutil.Ok(t, err)
	year, month, day := change.In(loc).Date()
	noon := func(days int) time.Time { return time.Date(year, month, day+days, 12, 0, 0, 0, loc) }
	ticks := map[string]int{}
	for at := when.Next(noon(-2)); at.Before(noon(2)); at = when.Next(at) {
		ticks[at.Format(time.DateOnly)]++
	}
	for days := -1; days <= 1; days++ {
		if date := noon(days).Format(time.DateOnly); ticks[date] != 1 {
			t.Errorf("%s in %s ticks %d times on %s, want once", spec, loc, ticks[date], date)
		}
	}
}

// ticksAgree wants the same ticks of spec around a change of the clocks from whatever time they are computed.
func ticksAgree(t *testing.T, loc *time.Location, change time.Time, spec string) {
	t.Helper()
	when, err := ParseSpec("CRON_TZ=" + loc.String() + " " + spec)
	testutil.Ok(t, err)
	next := when.Next(change.Add(-27 * time.Hour))
	for at := change.Add(-4 * time.Hour); at.Before(change.Add(4 * time.Hour)); at = at.Add(5 * time.Minute) {
		for !next.After(at) {
			next = when.Next(next)
		}
		if got := when.Next(at); !got.Equal(next) {
			t.Errorf("%s: the tick after %s is %s, but %s from the tick before it", spec, at.In(loc), got, next)
			return
		}
	}
}

func TestTicksHaveTheZoneOfTheirSpec(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local)
	for spec, want := range map[string]string{
		"0 3 * * *": "UTC", "@hourly": "UTC", "@every 90s": "UTC", "CRON_TZ=Asia/Tokyo 0 3 * * *": "JST", "CRON_TZ=Asia/Tokyo @hourly": "JST", "CRON_TZ=Asia/Tokyo @every 90s": "JST",
	} {
		when, err := ParseSpec(spec)
		testutil.Ok(t, err)
		if zone, _ := when.Next(now).Zone(); zone != want {
			t.Errorf("%s: got a tick in %s, want one in %s", spec, zone, want)
		}
	}
}

func TestBadSpecsAreTold(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":                             "no times",
		"TZ=UTC":                       "no times",
		"CRON_TZ=":                     "unknown time zone",
		"CRON_TZ=Nowhere/City * * * *": "unknown time zone",
		"CRON_TZ=Local 0 0 * * *":      "unknown time zone",
		"0 0 * * 8":                    "8",
		"0 0 * * 1-7/0":                "0",
		"0 0 3 * * 8-7":                "8",
		"0 0 * * FRI-7":                "7",
		"* * *":                        "expected",
		"61 * * * *":                   "61",
		"* * * * FUNDAY":               "FUNDAY",
		"0 0 30 2 *":                   "no date matches",
		"@every":                       "@every 90s",
		"@every soon":                  "@every 90s",
		"@every 1us":                   "at least 10ms",
		"@every 10.5ms":                "whole milliseconds",
		"@every -5s":                   "at least",
		"@every 1500000h":              "at most 87600h",
		"@sometimes":                   "@sometimes",
	} {
		_, err := ParseSpec(spec)
		if err == nil {
			t.Errorf("%q: got no error, want one", spec)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", spec, err, want)
		}
	}
}
