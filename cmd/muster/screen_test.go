package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/config"
)

// terminalOf returns a screen with the given columns, and its contents.
func terminalOf(columns int) (*screen, *bytes.Buffer) {
	var out bytes.Buffer
	return &screen{Writer: &out, terminal: true, fixed: columns}, &out
}

// fillTable writes a table whose texts are long.
func fillTable(s *screen) error {
	t := newTable(s, "JOB NAME STATUS ERROR")
	t.row("0b5c9a3e-8a55-4f6f-9d38-5c2a5a0f3f10", "商店の商品の一覧ページ", "failed", strings.Repeat("no reply ", 9)+"end", note("waiting: no agent of role "+strings.Repeat("x", 90)))
	t.row("1", "a\tb\x1b[2J", "completed", "")
	return t.flush()
}

// A table is cut to the width of a terminal, but for its first column.
// Elsewhere nothing is cut.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	const id = "0b5c9a3e-8a55-4f6f-9d38-5c2a5a0f3f10"
	for columns, whole := range map[int]bool{80: false, 100: false, 40: false, 0: true} {
		s, out := terminalOf(columns)
		s.terminal = columns > 0
		testutil.Ok(t, fillTable(s))
		if columns >= 80 {
			for line := range strings.Lines(out.String()) {
				if n := widthOf(strings.TrimRight(line, "\n")); n > columns {
					t.Errorf("%d columns: got a line of %d: %q", columns, n, line)
				}
			}
		}
		if !strings.Contains(out.String(), id) {
			t.Errorf("%d columns: got\n%s\nwant the id whole", columns, out)
		}
		if got := strings.Contains(out.String(), "no reply end"); got != whole {
			t.Errorf("%d columns: got the whole text: %v, want %v\n%s", columns, got, whole, out)
		}
		if strings.ContainsAny(out.String(), "\x1b\t") {
			t.Errorf("%d columns: got %q, want nothing that a terminal obeys", columns, out)
		}
	}
}

func TestStatesOfTablesHaveColours(t *testing.T) {
	t.Parallel()
	s, out := terminalOf(80)
	s.color = true
	testutil.Ok(t, fillTable(s))
	for _, want := range []string{"\x1b[32mcompleted\x1b[0m", "\x1b[31mfailed\x1b[0m"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got %q, want %q in it", out, want)
		}
	}
	null := testutil.Must(os.OpenFile(os.DevNull, os.O_WRONLY, 0))(t)
	defer null.Close()
	for _, environ := range [][]string{nil, {"FORCE_COLOR=1", "CLICOLOR_FORCE=1"}, {"NO_COLOR=1"}} {
		if newScreen(null, environ).color {
			t.Errorf("with %v: got colours without a terminal", environ)
		}
	}
}

// A log on a terminal has one format at every level.
func TestLogOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		level, format, want string
	}{
		{"warn", "auto", "level=WARN msg=\"no reply\" url=http://h err=\"is\\ndown\"\n"},
		{"info", "auto", "level=WARN msg=\"no reply\" url=http://h err=\"is\\ndown\"\n"},
		{"warn", "text", "level=WARN msg=\"no reply\" url=http://h err=\"is\\ndown\"\n"},
		{"error", "auto", ""},
	} {
		s, out := terminalOf(80)
		env := environment{stderr: s}
		newLogger(env, s, config.Log{Level: c.level, Format: c.format}).With("url", "http://h").Warn("no reply", "err", errors.New("is\ndown"))
		if got := out.String(); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s, %s: got %q, want %q", c.level, c.format, got, c.want)
		}
	}
}

// The last columns of the widest listing are omitted where its columns cannot be cut further.
func TestWideListingsFitATerminal(t *testing.T) {
	t.Parallel()
	s, out := terminalOf(80)
	wide := newTable(s, proxyColumns)
	wide.row("socks5://198.51.100.170:10800", "anonymous", "BG", "yes", "12345 ms", "100%", "rests 12 min", "59m ago", "12345", "0.99", "198.51.100.171")
	testutil.Ok(t, wide.flush())
	if got := out.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "SCORE") || !strings.Contains(got, "socks5://198.51.100.170:10800") {
		t.Errorf("got\n%s\nwant a row with its proxy, without its score", got)
	}
	for line := range strings.Lines(out.String()) {
		if n := widthOf(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("got a line of %d columns: %q", n, line)
		}
	}
}

// A worker on a terminal prints its queues and Redis without a password.
func TestWorkerSaysWhereItWorks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		terminal          bool
		url, format, want string
	}{
		{true, "redis://:hush@redis.example:6379/0", "auto", "takes tasks from redis://:xxxxx@redis.example:6379/0; Ctrl-C"},
		{true, "", "auto", "takes tasks from the Redis of data; Ctrl-C"},
		{true, "", "json", ""},
		{false, "", "auto", ""},
	} {
		s, out := terminalOf(80)
		s.terminal = c.terminal
		cfg := config.Config{DataDir: "data", Log: config.Log{Format: c.format}}
		cfg.Redis.URL = c.url
		sayWorking(environment{stderr: s}, cfg)
		if got := out.String(); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || strings.Contains(got, "hush") {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// A time is shown by its age, in one unit; one ahead of the clock is now.
func TestTimesAreShownByAge(t *testing.T) {
	t.Parallel()
	for ago, want := range map[time.Duration]string{-time.Second: "0s ago", 3 * time.Second: "3s ago", 5 * time.Minute: "5m ago", 7 * time.Hour: "7h ago", 73 * time.Hour: "3d ago"} {
		if got := textOf(time.Now().Add(-ago)); got != want {
			t.Errorf("%s ago: got %q, want %q", ago, got, want)
		}
	}
	if got := textOf(time.Time{}); got != "never" {
		t.Errorf("got %q, want never", got)
	}
}
