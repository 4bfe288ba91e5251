package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

// completeWord is the command that shells call with the words of a command line, of
// the last may be incomplete. It prints one candidate per line, with a description
// after a tab, and nothing if the word may be a file name.
const completeWord = "__complete"

// shells are the scripts that completion prints.
var shells = map[string]string{
	"bash": `_muster() {
	local IFS=$'\n'
	COMPREPLY=($(muster __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _muster muster
`,
	"zsh": `#compdef muster
_muster() {
	local -a found
	found=("${(@f)$(muster __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	found=("${(@)found//:/\\:}")
	found=("${(@)found//$'\t'/:}")
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
	"fish": `function __muster_complete
	set -l words (commandline -opc)
	set -l now (commandline -ct)
	set -l found (muster __complete $words[2..] "$now" 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path "$now"
	end
end
complete -c muster -f -a '(__muster_complete)'
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
		BashComplete: func(c *cli.Context) { fmt.Fprint(c.App.Writer, "bash\nfish\nzsh\n") },
		Action: func(c *cli.Context) error {
			if err := arguments(c, 1, 1); err != nil {
				return err
			}
			script, ok := shells[c.Args().First()]
			if !ok {
				return usageError{fmt.Errorf("no completion for %q; use bash, zsh or fish", c.Args().First())}
			}
			_, err := fmt.Fprint(env.stdout, script)
			return err
		},
	}
}

// complete prints the candidates for the last word.
func complete(env environment, app *cli.App, words []string) {
	flags, list, at := app.Flags, app.Commands, (*cli.Command)(nil)
	now := words[len(words)-1]
	for rest := words[:len(words)-1]; len(rest) > 0; {
		if word := rest[0]; strings.HasPrefix(word, "-") {
			n := flagWords(flags, append(slices.Clone(rest), now))
			if n > len(rest) { // now is its value
				return
			}
			rest = rest[n:]
			continue
		}
		switch i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(rest[0]) }); {
		case i >= 0:
			at = list[i]
			flags, list = at.Flags, at.Subcommands
		case len(list) > 0: // no command
			return
		}
		rest = rest[1:]
	}
	say := func(word, about string) {
		if strings.HasPrefix(word, now) {
			fmt.Fprintf(env.stdout, "%s\t%s\n", word, strings.ReplaceAll(about, "\t", " "))
		}
	}
	switch {
	case strings.HasPrefix(now, "-"):
		for _, f := range append(slices.Clone(flags), cli.HelpFlag) {
			if hidden, ok := f.(cli.VisibleFlag); ok && hidden.IsVisible() {
				_, usage, _ := strings.Cut(f.String(), "\t")
				say("--"+f.Names()[0], usage)
			}
		}
	case len(list) > 0:
		for _, c := range list {
			if !c.Hidden {
				say(c.Name, c.Usage)
			}
		}
	case at != nil && at.BashComplete != nil:
		var names strings.Builder
		inside := *app
		inside.Writer = &names
		at.BashComplete(cli.NewContext(&inside, flag.NewFlagSet("", flag.ContinueOnError), nil))
		for name := range strings.Lines(names.String()) {
			say(strings.TrimSuffix(name, "\n"), "")
		}
	}
}

// completeSites prints the names of the sites, one a line.
func completeSites(env environment) cli.BashCompleteFunc {
	return func(c *cli.Context) {
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
