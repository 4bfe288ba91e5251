package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
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
	if len(args) > 1 && (args[1] == "help" || args[1] == "h") { // muster help COMMAND is muster COMMAND --help
		args = append(append(args[:1:1], args[2:]...), "--help")
	}
	if args[len(args)-1] != completionFlag {
		args = flagsFirst(app, args)
	}
	err := app.RunContext(ctx, args)
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
		HideHelpCommand:           true, // see run
		DisableSliceFlagSeparator: true, // values have commas, such as JSON
		EnableBashCompletion:      true,
		Reader:                    env.stdin,
		Writer:                    env.stdout,
		ErrWriter:                 env.stderr,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     append(programFlags(""), cli.HelpFlag), // the library adds it only if a help command exists
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
			c.Flags = programFlags("") // for a command of the group
			setDefaults(env, path+" "+c.Name, c.Subcommands)
			continue
		}
		c.Action = shared(env, c.Action)
		c.Description = withExample(path+" "+c.Name, c.Description)
		c.Flags = append(c.Flags, programFlags("all")...)
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
	hint := nearest.Hint(word, names)
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
			flags = c.Command.Flags
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
		way := cmp.Or(removedFlags[strings.TrimPrefix(path, "muster ")+" --"+name], removedFlags[name])
		if setting := movedTo(path, name); way == "" && setting != "" {
			way = fmt.Sprintf("use --setting %s=VALUE", setting)
		}
		if way = cmp.Or(way, refusals[name]); way != "" {
			hint = "; " + way
		} else if near := nearest.Word(name, names); near != "" {
			hint = fmt.Sprintf(", did you mean --%s?", near)
		}
	}
	return usageError{fmt.Errorf("%w%s; see %s --help", err, hint, path)}
}

// flagsFirst moves all flags between the name of the command and its arguments, because the flag package stops at the first
// argument, and commands have the flags of the program: "muster --json scrape shop --wait" works.
func flagsFirst(app *cli.App, args []string) []string {
	out, rest := slices.Clone(args[:min(1, len(args))]), args[min(1, len(args)):]
	flags, list := app.Flags, app.Commands
	var held, words []string
	leaf := false
	for len(rest) > 0 {
		word := rest[0]
		switch i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) }); {
		case word == "--":
			words, rest = append(words, rest...), nil
		case strings.HasPrefix(word, "-") && word != "-":
			n := flagWords(flags, rest)
			held, rest = append(held, rest[:n]...), rest[n:]
		case i >= 0:
			out, rest = append(out, word), rest[1:]
			flags, list = list[i].Flags, list[i].Subcommands
			leaf = len(list) == 0
		default:
			words, rest, list = append(words, word), rest[1:], nil
		}
	}
	if leaf && slices.ContainsFunc(held, func(f string) bool { return slices.Contains(cli.HelpFlag.Names(), strings.TrimLeft(f, "-")) }) {
		words = nil // the library would look for help on them
	}
	return append(append(out, held...), words...)
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
	case slices.Contains(c.Args().Slice(), ""):
		return usageError{fmt.Errorf("an argument is empty; usage: %s", usageOf(c.Command))}
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

// commands is the command tree, in the order in which a new user needs it.
func commands(env environment) []*cli.Command {
	return append([]*cli.Command{
		demoCommand(env),
		startCommand(env),
		statusCommand(env),
		workerCommand(env),
		scrapeCommand(env),
		scrapesCommand(env),
		jobsCommand(env),
		pipelinesCommand(env),
		agentsCommand(env),
		webhooksCommand(env),
		sitesCommand(env),
		proxiesCommand(env),
		judgeCommand(env),
		renderCommand(env),
		queueCommand(env),
		pauseCommand(env),
		resumeCommand(env),
		breakersCommand(env),
		dashboardCommand(env),
		keysCommand(env),
		auditCommand(env),
		healthCommand(env),
		workflowsCommand(env),
		tasksCommand(env),
		workersCommand(env),
		queuesCommand(env),
		limitsCommand(env),
		schedulesCommand(env),
		configCommand(env),
		storeCommand(env),
		completionCommand(env),
		versionCommand(env),
		manCommand(env),
	}, hiddenCommands(env)...)
}

// touch creates an empty file, for scripts that wait for it; none if path is empty.
func touch(path string) {
	if path != "" {
		_ = os.WriteFile(path, nil, 0o600) // a script that waits for the file times out
	}
}

// hiddenCommands are other names of commands, which help, completion and the manual omit: muster orchestrator start, muster api serve,
// muster job for muster jobs, and muster site scrape, status and list.
func hiddenCommands(env environment) []*cli.Command {
	job, status := jobsCommand(env), scrapesGetCommand(env)
	status.Name = "status"
	job.Name = "job"
	serve := dashboardCommand(env)
	serve.Name = "serve"
	list := []*cli.Command{
		job,
		{Name: "orchestrator", Subcommands: []*cli.Command{startCommand(env)}},
		{Name: "api", Subcommands: []*cli.Command{serve}},
		{Name: "site", Subcommands: []*cli.Command{scrapeCommand(env), status, sitesListCommand(env)}},
	}
	for _, c := range list {
		c.Hidden, c.Usage = true, "another name"
	}
	return list
}

// instead names the way to do what commands of other programs do.
var instead = map[string]string{
	"backup":   "see docs/how-to/operating.md; while muster start is stopped, a copy of the data directory is complete",
	"doctor":   "use muster health",
	"init":     "use muster start, which creates the data directory, or muster sites init URL for the definition of a site",
	"logs":     "muster start logs to standard error; its worker processes log to logs/worker.log in the data directory",
	"ps":       "use muster workers list",
	"reload":   "send SIGHUP to muster start, or change its files",
	"restart":  "stop muster start with Ctrl-C or SIGTERM and start it again; no work is lost",
	"run":      "use muster start",
	"schedule": "use muster sites list for the schedules of sites, and muster schedules list for those of workflows",
	"serve":    "use muster start",
	"stop":     "stop muster start with Ctrl-C or SIGTERM",
}

// helpWidth is the width of help at most, in characters.
const helpWidth = 80

// helpTemplate is the help of the program and of each command.
const helpTemplate = `NAME:
   {{wrap (print .HelpName " - " .Usage) 3}}

USAGE:
   {{.HelpName}}{{if .VisibleCommands}} COMMAND{{end}} [options]{{with .ArgsUsage}} {{.}}{{end}}{{with .Description}}

DESCRIPTION:
   {{wrap (flow .) 3}}{{end}}{{if .VisibleCommands}}

COMMANDS:{{template "visibleCommandTemplate" .}}{{end}}{{with flags .}}

OPTIONS:{{range .}}
   {{index . 0}}
      {{wrap (index . 1) 6}}{{end}}{{end}}{{with shared .}}

OPTIONS OF THE PROGRAM, see muster --help:
   {{wrap . 3}}{{end}}
`

// printHelp replaces cli.HelpPrinter, which does not wrap lines.
func printHelp(w io.Writer, _ string, about any) {
	width := helpWidth
	if columns := columnsOf(w); columns > 0 {
		width = max(20, min(columns, helpWidth))
	}
	cli.HelpPrinterCustom(w, helpTemplate, about, map[string]any{"wrapAt": func() int { return width }, "flow": flow, "flags": flagTexts, "shared": sharedNames})
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

// isGlobal reports whether a flag is one of the program.
func isGlobal(f cli.Flag) bool {
	return slices.ContainsFunc(programFlags(""), func(g cli.Flag) bool { return g.Names()[0] == f.Names()[0] })
}

// flagTexts returns the names and the usage of the flags of a command, or of the program.
func flagTexts(about any) (texts [][2]string) {
	list, of := []cli.Flag(nil), func(f cli.Flag) bool { return !isGlobal(f) }
	switch about := about.(type) {
	case *cli.Command:
		list = about.VisibleFlags()
	case *cli.App:
		list, of = about.VisibleFlags(), isGlobal
	}
	for _, f := range list {
		if name, usage := flagText(f); of(f) && f != cli.HelpFlag { // the library may have added it yet or not
			texts = append(texts, [2]string{name, usage})
		}
	}
	return texts
}

// sharedNames returns the names of the flags of the program that a command has.
func sharedNames(about any) string {
	var names []string
	if c, ok := about.(*cli.Command); ok {
		for _, f := range programFlags("") {
			if name := f.Names()[0]; hasFlag(c, name) {
				names = append(names, "--"+name)
			}
		}
	}
	return strings.Join(names, ", ")
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

// completionFlag is the last argument of a command line that asks for completions.
const completionFlag = "--generate-bash-completion"

// shells are the scripts that completion prints.
var shells = map[string]string{
	"bash": `_muster() {
	local cur="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]:0:COMP_CWORD}")
	[[ "$cur" == -* ]] && words+=("$cur")
	COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
	local -a asked found
	asked=("${(@)words[1,CURRENT-1]}")
	[[ "$words[CURRENT]" == -* ]] && asked+=("$words[CURRENT]")
	found=("${(@f)$("${(@)asked}" --generate-bash-completion 2>/dev/null)}")
	if [[ -n "$found[1]" ]]; then
		_describe command found
	else
		_files
	fi
}
if [[ "$funcstack[1]" == _muster ]]; then
	_muster "$@"
else
	compdef _muster muster
fi
`,
}

func completionCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell completion script", ArgsUsage: "bash|zsh|fish",
		Description: `Put it where the shell reads it, or read it now:

    source <(muster completion bash)
    muster completion bash > ~/.local/share/bash-completion/completions/muster
    muster completion zsh > "${fpath[1]}/_muster"
    muster completion fish > ~/.config/fish/completions/muster.fish`,
		Action: func(c *cli.Context) (err error) {
			script, ok := shells[c.Args().First()]
			if c.Args().First() == "fish" {
				script, err = newApp(env).ToFishCompletion()
			} else if !ok {
				err = usageError{fmt.Errorf("no completion for %q; use bash, zsh or fish", c.Args().First())}
			}
			if err == nil {
				_, err = fmt.Fprint(env.stdout, script)
			}
			return err
		},
	}
}

// completeSites prints the names of the sites, one a line, after the flags of the command if the last word begins with a
// dash: the shell selects the matching ones.
func completeSites(env environment) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		if n := len(os.Args); n > 2 && strings.HasPrefix(os.Args[n-2], "-") {
			cli.DefaultCompleteWithFlags(c.Command)(c)
		}
		loaded, err := loadConfig(env, c)
		if err != nil {
			return
		}
		registry, err := orchestrator.LoadSites(loaded.Config)
		if err != nil {
			return
		}
		for _, name := range registry.Names() {
			fmt.Fprintln(c.App.Writer, name)
		}
	}
}

//go:generate go test -run TestManual -update .

func manCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "man", Hidden: true, Usage: "print the manual page",
		Description: `    muster man > /usr/local/share/man/man1/muster.1
    muster man | man -l -`,
		Action: func(c *cli.Context) error {
			app := newApp(env) // the library changes the flags of the running one
			withUsageText(app.Commands)
			page, err := app.ToManWithSection(1)
			if err == nil {
				_, err = fmt.Fprint(env.stdout, page)
			}
			return err
		},
	}
}

// withUsageText makes the descriptions of commands the usage texts that the manual page prints, and removes the flags that
// all commands have.
func withUsageText(commands []*cli.Command) {
	for _, c := range commands {
		c.UsageText = c.Description
		c.Flags = slices.DeleteFunc(c.Flags, isGlobal)
		withUsageText(c.Subcommands)
	}
}

// version is set by the linker of a release. Without it, it is the version of the
// module that go install has built.
var version string

func thisVersion() string {
	info, ok := debug.ReadBuildInfo()
	if version == "" && ok && info.Main.Version != "(devel)" {
		return cmp.Or(info.Main.Version, "dev")
	}
	return cmp.Or(version, "dev")
}

func versionCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Description: "    muster version",
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(env.stdout, "muster version "+thisVersion())
			return err
		},
	}
}

// shared wraps the action of a command with the behaviour that all commands share.
func shared(env environment, action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Bool("quiet") {
			screenOf(env.stderr).mute()
		}
		if hasFlag(c.Command, "wait") && c.IsSet("timeout") && !c.Bool("wait") {
			return usageError{errors.New("--timeout requires --wait")}
		}
		if err := arguments(c); err != nil {
			return err
		}
		return action(c)
	}
}

// examples lists example command lines for commands whose description has none.
// They are printed at the end of the command's help.
var examples = map[string]string{
	"demo":   "muster demo\nmuster demo --keep              # and explore the web UI",
	"start":  "muster start\nmuster start --setting workers.processes=4\nmuster start --once --json > round.json",
	"worker": "muster worker --redis redis://host:6379/0 --setting workers.concurrency=20",
	"scrape": "muster scrape books.toscrape.com --wait\nmuster scrape shop.yaml --direct --out - | jq .title\nmuster scrape https://books.toscrape.com/ --limit 10 --csv",

	"scrapes list":   "muster scrapes list books.toscrape.com",
	"scrapes get":    "muster scrapes get books.toscrape.com --wait",
	"scrapes retry":  "muster scrapes retry books.toscrape.com --wait",
	"scrapes cancel": "muster scrapes cancel books.toscrape.com",

	"sites list":  "muster sites list",
	"sites init":  "muster sites init https://shop.example/lamps > shop.yaml",
	"sites get":   "muster sites get books.toscrape.com > mine.yaml",
	"sites check": "muster sites check shop.yaml\nmuster sites check --live shop.yaml",
	"sites test":  "muster sites test shop.yaml --cache pages",
	"sites try":   "muster sites try https://shop.example/lamps h3\nmuster sites try page.html --each .product h3 '{css: .price, type: price}'",

	"sites history": "muster sites history shop.example https://shop.example/item/7",

	"proxies refresh": "muster proxies refresh\nmuster proxies refresh --source list.txt,https://lists.example/socks5.txt",
	"proxies list":    "muster proxies list --limit 20\nmuster proxies list --stats\nmuster proxies list --site shop.example --json | jq -r '.data[].id'",
	"proxies check":   "muster proxies check socks5://198.51.100.7:1080\nmuster proxies check --alive --file list.txt\nmuster proxies check --target https://shop.example/ --expect 'Our lamps'\nmuster proxies check --add http://198.51.100.7:8080",
	"proxies delete":  "muster proxies delete 198.51.100.7",
	"proxies unban":   "muster proxies unban 198.51.100.7:8080",
	"proxies ban":     "muster proxies ban 198.51.100.7:8080 --site shop.example --for 24h",
	"proxies export":  "muster proxies export backup\nmuster proxies export - | shuf -n 1\nmuster proxies export --format csv - > pool.csv",
	"proxies serve":   "muster proxies serve --listen 127.0.0.1:8089\ncurl -x http://127.0.0.1:8089 https://shop.example/",

	"store copy": "muster store copy --to redis://host:6379/0",

	"queue enqueue":      "muster queue enqueue doi:10.1/x '{\"url\": \"https://example.org/x.pdf\"}'",
	"queue import":       "muster queue import artifacts.jsonl --queue papers",
	"queue run":          "muster queue run --drain --workers 8",
	"queue stats":        "muster queue stats\nwatch muster queue stats",
	"queue forget":       "muster queue forget --ended-for 168h\nmuster queue forget doi:10.1/x",
	"queue delete":       "muster queue delete --queue papers",
	"queue retry-failed": "muster queue retry-failed --dry-run\nmuster queue retry-failed --max-attempts 5",

	"judge":           "muster judge --listen 0.0.0.0:8088",
	"render":          "muster render --listen 0.0.0.0:8090 --key-file render.key",
	"dashboard":       "muster dashboard --redis redis://host:6379/0",
	"keys list":       "muster keys list",
	"keys revoke":     "muster keys revoke ci",
	"audit":           "muster audit --caller ci --since 24h",
	"agents delete":   "muster agents delete reviewer-1",
	"webhooks list":   "muster webhooks list",
	"webhooks get":    "muster webhooks get ops --state failed",
	"webhooks delete": "muster webhooks delete ops",
	"webhooks send":   "muster webhooks send ops\nmuster webhooks send ops 1735689600000-0",
	"health":          "muster health\nmuster health --url http://localhost:8000/health",

	"workflows list":      "muster workflows list --state failure --since 1h\nmuster workflows list --label book=owls",
	"workflows get":       "muster workflows get ID\nmuster workflows get ID --wait | jq .",
	"workflows send":      "muster workflows send mail.send '{\"to\": \"ops\"}'\nmuster workflows send report.build '\"2027-01\"' --wait --timeout 5m",
	"workflows cancel":    "muster workflows cancel ID\nmuster workflows cancel --all --name import",
	"workflows retry":     "muster workflows retry ID --input '2={\"amount\": 100}'\nmuster workflows retry --all --name import --since 24h",
	"workflows run-again": "muster workflows run-again ID --from 2 --input '2={\"amount\": 90}'",
	"workflows output":    "muster workflows output ID 2",
	"workflows revoke":    "muster workflows revoke ID --node 3",
	"tasks list":          "muster tasks list --state open --task article.review\nmuster tasks list --stats --since 24h --step hour",
	"tasks complete":      "muster tasks complete WORKFLOW NODE --result '{\"approved\": true}'\nmuster tasks complete WORKFLOW NODE --error 'not approved' --permanent",
	"workers list":        "muster workers list --timeout 5s\nmuster workers list --tasks",
	"queues list":         "muster queues list",
	"limits list":         "muster limits list",
	"limits set":          "muster limits set billing-api 5 --key acme",
	"limits hold":         "muster limits hold billing-api 30s",
	"schedules list":      "muster schedules list\nmuster schedules list customer- --label region=eu",
	"schedules put":       "muster schedules put nightly '0 3 * * *' report.build '\"all\"' --overlap queue --jitter 5m\nmuster schedules put weekly '0 6 * * 1' jobs.create '{\"prompt\": \"Check all\"}' --queue orchestrator",
	"schedules trigger":   "muster schedules trigger nightly\nmuster schedules trigger nightly --from 2027-01-01T00:00:00Z",
	"schedules delete":    "muster schedules delete nightly",
	"workflows delete":    "muster workflows delete ID",

	"config":         "muster config | grep '^sites'\nmuster config --check muster.yaml",
	"breakers list":  "muster breakers list",
	"breakers reset": "muster breakers reset shop.example\nmuster breakers reset --all",
}

// withExample appends the example of a command to its description.
func withExample(path, text string) string {
	example := examples[strings.TrimPrefix(path, "muster ")]
	if example == "" {
		return text
	}
	return strings.TrimPrefix(text+"\n\n    "+strings.ReplaceAll(example, "\n", "\n    "), "\n\n")
}
