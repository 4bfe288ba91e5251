package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/urfave/cli/v2"
)

// shared wraps the action of a command with the behaviour that all commands share.
func shared(env environment, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if value, ok := flagValue(c, "quiet"); ok && value != "false" {
			screenOf(env.stderr).mute()
		}
		if err := arguments(c); err != nil {
			return err
		}
		if c.Bool("watch") {
			return watch(env, c, watchEvery, action)
		}
		return action(c)
	}
}

// watchEvery is how often a list that is watched is printed.
const watchEvery = 2 * time.Second

// watch runs action at an interval until it fails without output or the context is done. On a
// terminal each output replaces the previous one; elsewhere an empty line separates
// them, or with --json each is one line.
func watch(env environment, c *cli.Context, every time.Duration, action cli.ActionFunc) error {
	screen := screenOf(env.stdout)
	out := screen.Writer
	defer func() { screen.Writer, screen.again = out, false }()
	screen.again = true
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		var page bytes.Buffer
		screen.Writer = &page
		err := action(c)
		if c.Context.Err() != nil {
			return context.Cause(c.Context)
		}
		if page.Len() > 0 { // an error after output is part of the result, such as "not healthy"
			err = screen.draw(out, n, page.String())
		}
		if err != nil {
			return err
		}
		select {
		case <-c.Context.Done():
			return context.Cause(c.Context)
		case <-tick.C:
		}
	}
}

// draw prints the nth page. On a terminal it replaces the last one, and ends
// where the terminal does.
func (s *screen) draw(out io.Writer, n int, page string) error {
	columns, lines := s.size()
	if columns == 0 {
		if n > 0 && !s.asJSON {
			page = "\n" + page
		}
		_, err := io.WriteString(out, page)
		return err
	}
	var b strings.Builder
	if n == 0 {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	rows := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	for i, row := range rows {
		if lines > 0 && i == lines-1 {
			fmt.Fprintf(&b, "\x1b[K%s", runewidth.Truncate(fmt.Sprintf("… %d lines more", len(rows)-i), columns-1, "…"))
			break
		}
		b.WriteString(row + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(out, b.String())
	return err
}
