package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/nearest"
	"muster/orchestrator"
)

// run executes the command line args, whose first word is the program, and
// returns the exit code.
func run(ctx context.Context, env environment, args []string) int {
	app := newApp(env)
	var err error
	if args[len(args)-1] != completionFlag {
		args, err = flagsFirst(app, args)
	}
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	if errors.Is(err, errStopped) {
		return exitDone
	}
	// An interrupted command exits with 130, however it ended.
	if cause := context.Cause(ctx); errors.Is(cause, errInterrupted) {
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
			text := errInterrupted.Error()
			if left, ok := errors.AsType[interruption](err); ok {
				text = left.Error()
			}
			fmt.Fprintln(raw(env.stderr), "muster: "+text)
			return exitInterrupted
		}
	}
	if err == nil {
		return exitDone
	}
	if errors.Is(err, orchestrator.ErrNoReader) { // the reader of standard output closed it: as with SIGPIPE, print nothing
		return exitNoReader
	}
	fmt.Fprintf(raw(env.stderr), "muster: %s\n", printableLines(err.Error()))
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	return exitFailed
}

// newApp returns the command tree. The library's own handling of errors and of
// unknown commands is switched off: it calls os.Exit, or exits with 0.
func newApp(env environment) *cli.App {
	app := &cli.App{
		Name:  "muster",
		Usage: "distributed tasks on Redis, a proxy pool, scrapers and agent pipelines",
		Description: `Start here:  muster demo         try everything on loopback, in 15 seconds
             muster start        run Redis, workers, schedule and web pages
             muster status       show all of it on one screen
             muster scrape SITE  scrape one site now
Exit codes:  0 success, 1 failure, 2 wrong usage, 130 interrupted (0 if a
             server received SIGTERM), 141 closed pipe`,
		Version:                   thisVersion(),
		HideHelpCommand:           true, // ours is helpCommand
		DisableSliceFlagSeparator: true, // values have commas, such as JSON
		EnableBashCompletion:      true,
		Reader:                    env.stdin,
		Writer:                    env.stdout,
		ErrWriter:                 env.stderr,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     append(globalFlags(), cli.HelpFlag), // the library adds it only if a help command exists
		Commands:                  commands(env),
	}
	app.OnUsageError = wrongUsage
	app.Action = group
	setDefaults(env, "muster", app.Commands)
	return app
}

// setDefaults gives every command below path the same handling of errors, help
// and unknown arguments, and the shared flags.
func setDefaults(env environment, path string, commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = wrongUsage
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			if c.Action == nil {
				c.Action = group
			}
			for _, sub := range c.Subcommands { // the library sets it only when it runs them
				sub.HelpName = path + " " + c.Name + " " + sub.Name
			}
			setDefaults(env, path+" "+c.Name, c.Subcommands)
			continue
		}
		c.Action = shared(env, c.Action)
		c.Description = withExample(path+" "+c.Name, c.Description)
		c.Flags = append(c.Flags, globalFlags()...)
		for _, f := range c.Flags {
			if b, ok := f.(*cli.BoolFlag); ok && !b.Value {
				b.DisableDefaultText = true
			}
		}
	}
}

// group is the action of a command that only has subcommands.
func group(c *cli.Context) error {
	if !c.Args().Present() {
		if c.Command == nil || c.Command.Name == "" || c.Command.Name == "muster" {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	list, path := c.App.Commands, c.App.HelpName
	if c.Command != nil && len(c.Command.Subcommands) > 0 {
		list, path = c.Command.Subcommands, c.Command.HelpName
	}
	return noCommand(c.Args().First(), path, list)
}

// noCommand is the error for an unknown command of path.
func noCommand(word, path string, list []*cli.Command) error {
	var names []string
	for _, c := range list {
		names = append(names, c.Names()...)
	}
	hint := suggest(word, names)
	if way, ok := instead[word]; ok && path == "muster" {
		hint = "; " + way
	}
	return usageError{fmt.Errorf("no command %q%s; see %s --help", withoutPassword(word), hint, path)}
}

// wrongUsage suggests a flag with a similar name when one is unknown.
func wrongUsage(c *cli.Context, err error, _ bool) error {
	const undefined = "flag provided but not defined: -"
	hint, path := "", "muster"
	if c.Command != nil && c.Command.HelpName != "" {
		path = c.Command.HelpName
	}
	if name, ok := strings.CutPrefix(err.Error(), undefined); ok {
		flags := c.App.Flags
		if c.Command != nil && c.Command.Name != "" {
			flags = append(slices.Clone(c.Command.Flags), flags...)
		}
		var names []string
		for _, f := range flags {
			for _, n := range f.Names() {
				if len(n) > 1 {
					names = append(names, n)
				}
			}
		}
		name = strings.TrimLeft(name, "-")
		err = fmt.Errorf("no flag --%s", name)
		if hint = removedFlags[name]; hint != "" {
			hint = "; " + hint
		} else if setting := movedTo(path, name); setting != "" {
			hint = fmt.Sprintf("; use --setting %s=VALUE", setting)
		} else if near := nearest.Word(name, names); near != "" {
			hint = fmt.Sprintf(", did you mean --%s?", near)
		}
	}
	return usageError{fmt.Errorf("%w%s; see %s --help", err, hint, path)}
}

// flagsFirst moves the flags of a command before its arguments, because the
// flag package stops at the first argument: "muster scrape shop --wait" works.
func flagsFirst(app *cli.App, args []string) ([]string, error) {
	head, rest := args[:min(1, len(args))], args[min(1, len(args)):]
	flags, list := app.Flags, app.Commands
	out := slices.Clone(head)
	var held []string // flags seen before the subcommand that they may belong to
	for len(rest) > 0 {
		word := rest[0]
		if strings.HasPrefix(word, "-") && word != "-" && word != "--" {
			n := flagWords(flags, rest)
			held, rest = append(held, rest[:n]...), rest[n:]
			continue
		}
		i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
		if i < 0 {
			break
		}
		out = append(append(out, held...), word)
		held, rest = nil, rest[1:]
		flags, list = list[i].Flags, list[i].Subcommands
	}
	var words []string
	for len(rest) > 0 {
		switch word := rest[0]; {
		case word == "--":
			words, rest = append(words, rest...), nil
		case strings.HasPrefix(word, "-") && word != "-":
			n := flagWords(flags, rest)
			held, rest = append(held, rest[:n]...), rest[n:]
		default:
			words, rest = append(words, word), rest[1:]
		}
	}
	return append(append(out, held...), words...), nil
}

// flagWords returns how many words the flag at the head of args takes: two
// when its value is the next word.
func flagWords(flags []cli.Flag, args []string) int {
	name := strings.TrimLeft(args[0], "-")
	if strings.Contains(name, "=") || len(args) == 1 {
		return 1
	}
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			if value, ok := f.(cli.DocGenerationFlag); ok && !value.TakesValue() {
				return 1
			}
			return 2
		}
	}
	return 1
}

// arguments checks the number of arguments of a command by its usage: [X] may be absent, and X… may be repeated. The flag
// --job-id is another way to write one.
func arguments(c *cli.Context) error {
	least, most, n := 0, 0, c.NArg()
	for _, word := range strings.Fields(c.Command.ArgsUsage) {
		if most++; !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.Contains(word, "…") {
			most = math.MaxInt16
		}
	}
	if c.String("job-id") != "" {
		n++
	}
	switch {
	case n < least:
		return usageError{fmt.Errorf("not enough arguments; usage: %s", usageOf(c.Command))}
	case n > most:
		return usageError{fmt.Errorf("unexpected argument %q; usage: %s", withoutPassword(c.Args().Get(most)), usageOf(c.Command))}
	}
	return nil
}

// usageOf is the usage line of a command.
func usageOf(c *cli.Command) string {
	if len(c.Subcommands) > 0 {
		return c.HelpName + " COMMAND [options]"
	}
	return strings.TrimSpace(c.HelpName + " [options] " + c.ArgsUsage)
}
