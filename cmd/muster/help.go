package main

import (
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// helpWidth is the width of help at most, in characters.
const helpWidth = 80

// helpTemplate is the help of the program and of each command.
const helpTemplate = `NAME:
   {{wrap (print .HelpName " - " .Usage) 3}}

USAGE:
   {{.HelpName}}{{if .VisibleCommands}} COMMAND{{end}} [options]{{with .ArgsUsage}} {{.}}{{end}}{{with .Description}}

DESCRIPTION:
   {{wrap (flow .) 3}}{{end}}{{if .VisibleCommands}}

COMMANDS:{{template "visibleCommandTemplate" .}}{{end}}{{range $title, $flags := flags .VisibleFlags}}

{{$title}}:{{range $flags}}
   {{index . 0}}
      {{wrap (index . 1) 6}}{{end}}{{end}}
`

// printHelp replaces cli.HelpPrinter, which does not wrap lines.
func printHelp(w io.Writer, _ string, about any) {
	width := helpWidth
	if columns := columnsOf(w); columns > 0 {
		width = max(20, min(columns, helpWidth))
	}
	cli.HelpPrinterCustom(w, helpTemplate, about, map[string]any{"wrapAt": func() int { return width }, "flow": flow, "flags": flagTexts})
}

// flow joins the lines of paragraphs without columns, for wrapping.
func flow(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.Contains(p, "  ") {
			paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
		}
	}
	return strings.Join(paragraphs, "\n\n")
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

// flagTexts returns the names of flags and their usage, by title.
func flagTexts(list []cli.Flag) map[string][][2]string {
	texts := map[string][][2]string{}
	for _, f := range list {
		title := "OPTIONS"
		if isGlobal(f) {
			title = "OPTIONS OF ALL COMMANDS"
		}
		if name, usage := flagText(f); f != cli.HelpFlag { // the library may have added it yet or not
			texts[title] = append(texts[title], [2]string{name, usage})
		}
	}
	return texts
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
