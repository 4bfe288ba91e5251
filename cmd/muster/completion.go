package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
)

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
