package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// helpWidth is the width of help at most, in characters.
const helpWidth = 80

// printHelp replaces cli.HelpPrinter, which does not wrap lines.
func printHelp(w io.Writer, _ string, about any) {
	h := &help{w: w, width: helpWidth}
	if columns := columnsOf(w); columns > 0 {
		h.width = max(20, min(columns, helpWidth))
	}
	switch c := about.(type) {
	case *cli.App:
		h.name(c.HelpName, c.Usage)
		h.section("USAGE", "muster COMMAND [options]")
		h.section("VERSION", c.Version)
		h.section("DESCRIPTION", c.Description)
		h.commands(c.VisibleCommands())
		h.flags("GLOBAL OPTIONS", c.VisibleFlags())
		h.section("MORE", c.HelpName+" COMMAND --help describes a command.")
	case *cli.Command:
		h.name(c.HelpName, c.Usage)
		h.section("USAGE", usageOf(c))
		h.section("DESCRIPTION", c.Description)
		h.commands(c.VisibleCommands())
		var own, global []cli.Flag
		for _, f := range c.VisibleFlags() {
			if isGlobal(f) {
				global = append(global, f)
			} else {
				own = append(own, f)
			}
		}
		h.flags("OPTIONS", own)
		h.flags("GLOBAL OPTIONS", global)
	}
}

// helpCommand is "muster help COMMAND", the same as --help.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Aliases: []string{"h"}, Hidden: true,
		Usage:     "describe a command",
		ArgsUsage: "[COMMAND…]",
		Action: func(c *cli.Context) error {
			var at *cli.Command
			list, path := c.App.Commands, c.App.HelpName
			for _, word := range c.Args().Slice() {
				i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
				if i < 0 {
					return noCommand(word, path, list)
				}
				at = list[i]
				list, path = at.Subcommands, at.HelpName
			}
			if at == nil {
				return cli.ShowAppHelp(c)
			}
			cli.HelpPrinter(c.App.Writer, "", at)
			return nil
		},
	}
}

// isGlobal reports whether every command has the flag.
func isGlobal(f cli.Flag) bool {
	name := f.Names()[0]
	return slices.ContainsFunc(globalFlags(), func(g cli.Flag) bool { return g.Names()[0] == name })
}

// help writes a page of help, no line longer than width, if its words allow that.
type help struct {
	w     io.Writer
	width int
}

func (h *help) name(name, usage string) {
	fmt.Fprintf(h.w, "NAME:\n%s", h.columns(name+" -", usage, utf8.RuneCountInString(name)+2))
}

// section writes paragraphs.
func (h *help) section(title, text string) {
	if text == "" {
		return
	}
	fmt.Fprintf(h.w, "\n%s:\n", title)
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			fmt.Fprintln(h.w)
		}
		if !strings.Contains(paragraph, "  ") { // else its columns are meant
			paragraph = strings.ReplaceAll(paragraph, "\n", " ")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			for _, l := range wrap(line, h.width-3) {
				fmt.Fprintf(h.w, "   %s\n", l)
			}
		}
	}
}

func (h *help) commands(list []*cli.Command) {
	var rows [][2]string
	for _, c := range list {
		rows = append(rows, [2]string{strings.Join(c.Names(), ", "), c.Usage})
	}
	h.table("COMMANDS", rows)
}

func (h *help) flags(title string, list []cli.Flag) {
	var rows [][2]string
	for _, f := range list {
		if f == cli.HelpFlag { // the library may have added it yet or not
			continue
		}
		name, usage := flagText(f)
		rows = append(rows, [2]string{name, usage})
	}
	h.table(title, rows)
}

// flagText returns the names of a flag and its usage.
func flagText(f cli.Flag) (name, usage string) {
	name, usage, _ = strings.Cut(f.String(), "\t")
	name, _, _ = strings.Cut(name, " [ ") // the library shows that a flag may be repeated by its repetition
	for _, none := range []string{" (default: 0)", " (default: 0s)", " (default: false)"} {
		usage = strings.TrimSuffix(usage, none)
	}
	return name, usage
}

// widest is the maximum width of the left column of a table; a longer cell has
// its own line.
func (h *help) widest() int { return h.width / 3 }

func (h *help) table(title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	left := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r[0]); n <= h.widest() {
			left = max(left, n)
		}
	}
	fmt.Fprintf(h.w, "\n%s:\n", title)
	for _, r := range rows {
		fmt.Fprint(h.w, h.columns(r[0], r[1], left+1))
	}
}

// columns writes two columns, the first of them left runes wide.
func (h *help) columns(first, second string, left int) string {
	var b strings.Builder
	lines := wrap(second, h.width-3-left-1)
	if utf8.RuneCountInString(first) > left {
		fmt.Fprintf(&b, "   %s\n", first)
		first = ""
	}
	for _, l := range lines {
		b.WriteString(strings.TrimRight(fmt.Sprintf("   %-*s %s", left, first, l), " ") + "\n")
		first = ""
	}
	return b.String()
}

// wrap breaks a line between words. One that is short enough stays as it is.
func wrap(line string, width int) []string {
	if utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	var lines []string
	now := ""
	for word := range strings.FieldsSeq(line) {
		if now != "" && utf8.RuneCountInString(now)+1+utf8.RuneCountInString(word) > width {
			lines, now = append(lines, now), ""
		}
		if now != "" {
			now += " "
		}
		now += word
	}
	return append(lines, now)
}
