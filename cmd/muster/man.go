package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/urfave/cli/v2"
)

//go:generate go test -run TestManual -update .

func manCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual: all commands with their options, examples and JSON",
		Description: `    muster man > /usr/local/share/man/man1/muster.1
    muster man | man -l -`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "markdown", Usage: "print it as Markdown"}},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			page := manual(newApp(env)) // of the library's copy some flags are gone
			if c.Bool("markdown") {
				_, err := fmt.Fprint(env.stdout, page)
				return err
			}
			_, err := env.stdout.Write(md2man.Render([]byte("% MUSTER 1 \"\" \"muster " + thisBuild().Version + "\"\n\n" + page)))
			return err
		},
	}
}

// manual returns the reference of all commands, in Markdown.
func manual(app *cli.App) string {
	m := &manualText{}
	m.say("# Commands")
	m.say("Made by `go generate ./cmd/muster` from the help of the program. `muster man` prints it as a manual page, `muster COMMAND --help` the part on a command.")
	m.text(app.Description)
	m.say("## Common behaviour")
	m.say("Results are on standard output, all else is on standard error. On a terminal tables are cut to its width, states have colours unless `NO_COLOR` is set, and the log has warnings only, unless `--log-level` or the setting changes it. In a file or a pipe nothing is cut and nothing has colours.")
	m.say("`--watch` prints again every 2 seconds until Ctrl-C: on a terminal it replaces the previous output, elsewhere an empty line separates the outputs, and with `--json` each output is one line.")
	m.say("`--json` prints the structure shown under **JSON** for each command. A key with a question mark may be missing, `…` means more elements or any key, and `{…}` for an object within itself. A time is a string as in RFC 3339.")
	m.flags(globalFlags())
	for _, c := range app.Commands {
		m.command("muster", c)
	}
	return strings.TrimSpace(m.String()) + "\n"
}

// manualText writes Markdown.
type manualText struct{ strings.Builder }

// say prints a paragraph of Markdown.
func (m *manualText) say(text string) { m.WriteString(text + "\n\n") }

// text writes the description of a command. Lines with columns are code.
func (m *manualText) text(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains(paragraph, "  ") {
			m.code("", paragraph)
		} else if paragraph != "" {
			m.say(plain(paragraph))
		}
	}
}

// code writes lines as they are, without the indent that all of them have.
func (m *manualText) code(language, text string) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	indent := len(text)
	for _, line := range lines {
		if line != "" {
			indent = min(indent, len(line)-len(strings.TrimLeft(line, " ")))
		}
	}
	for i, line := range lines {
		lines[i] = line[min(indent, len(line)):]
	}
	m.say("```" + language + "\n" + strings.Join(lines, "\n") + "\n```")
}

// plain returns Markdown that shows a text as it is, but for code in backquotes.
func plain(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.NewReplacer("*", `\*`, "<", `\<`, "|", `\|`).Replace(parts[i])
	}
	return strings.Join(parts, "`")
}

// command writes about a command and those below it.
func (m *manualText) command(path string, c *cli.Command) {
	if c.Hidden {
		return
	}
	path += " " + c.Name
	m.say("## " + path)
	if len(c.Subcommands) == 0 {
		m.code("", strings.TrimSpace(path+" [options] "+c.ArgsUsage))
	}
	about := strings.ToUpper(c.Usage[:1]) + c.Usage[1:] + "."
	if names := c.Names(); len(names) > 1 {
		about += " Also: " + strings.Join(names[1:], ", ") + "."
	}
	m.say(plain(about))
	m.text(c.Description)
	var own []cli.Flag
	for _, f := range c.Flags {
		if shown, ok := f.(cli.VisibleFlag); (!ok || shown.IsVisible()) && !isGlobal(f) {
			own = append(own, f)
		}
	}
	m.flags(own)
	for _, a := range jsonOutputsOf(path) {
		title := "**JSON**"
		if a.when != "" {
			title += " " + a.when
		}
		if a.lines {
			title += ", one a line"
		}
		m.say(title + ":")
		m.code("", shapeOf(reflect.TypeOf(a.value)))
	}
	for _, sub := range c.Subcommands {
		m.command(path, sub)
	}
}

// jsonOutputsOf returns the types that a command prints with --json.
func jsonOutputsOf(path string) []jsonOutput { return jsonOutputs[strings.TrimPrefix(path, "muster ")] }

// flags writes a list of options.
func (m *manualText) flags(list []cli.Flag) {
	for _, f := range list {
		if slices.Contains(f.Names(), "help") {
			continue
		}
		name, usage := flagText(f)
		m.WriteString("* `" + name + "`: " + plain(usage) + "\n")
	}
	if len(list) > 0 {
		m.WriteString("\n")
	}
}
