package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"muster/tasks"
	"muster/tasks/tasktype"
)

// tokenVar is the environment variable for a token. A token is never an argument, because other users of the machine can
// see arguments.
const tokenVar = "MUSTER_TOKEN"

// maxToken is the limit of the line of a token, in bytes.
const maxToken = 4096

func tokensCommand(env environment) *cli.Command {
	const where = `The token is read from ` + tokenVar + ` or, without that, from the first line of
standard input: arguments can be seen by others.`
	leaf := func(name, usage, args string, n int, about string, fn func(context.Context, *cli.Context, fleet) error, flags ...cli.Flag) *cli.Command {
		least := n
		if strings.HasPrefix(args, "[") {
			least = 0
		}
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Description: about, Flags: flags, Action: withClient(env, least, n, fn)}
	}
	return &cli.Command{
		Name:  "tokens",
		Usage: "list and complete external tasks",
		Subcommands: []*cli.Command{
			leaf("list", "list the open nodes of an external task or, without TASK, all tasks with open nodes", "[TASK]", 1,
				"Tokens are not shown; create one with tokens new.", tokensList,
				&cli.IntFlag{Name: "limit", Usage: "at most `N`", Value: 100}, watchFlag(), jsonFlag()),
			leaf("new", "make and print a token for a node that waits; the one before ends", "WORKFLOW NODE", 2,
				"A token is a secret: anyone who has it can complete the task.", tokensNew),
			leaf("complete", "complete the node of a token", "", 0, where, tokensComplete,
				&cli.StringFlag{Name: "value", Usage: "the result as `JSON`, or - for the rest of standard input", Required: true}),
			leaf("fail", "fail the attempt of a token", "", 0, where, tokensFail,
				&cli.StringFlag{Name: "message", Usage: "why, as `TEXT`", Required: true},
				&cli.StringFlag{Name: "code", Usage: "the `CODE` of the failure", DefaultText: "error"},
				&cli.BoolFlag{Name: "permanent", Usage: "do not retry the task"}),
			leaf("extend", "move the deadline of the node of a token", "", 0, where, tokensExtend,
				&cli.DurationFlag{Name: "by", Usage: "to `D` from now", Required: true}),
		},
	}
}

func tokensList(ctx context.Context, c *cli.Context, client fleet) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	if !c.Args().Present() {
		open, err := client.Client.OpenTasks(ctx)
		if err != nil {
			return err
		}
		return show(client.env, c, open[:min(limit, len(open))], []string{"TASK", "OPEN"}, func(o tasktype.OpenTask) []string {
			return []string{o.Task, fmt.Sprint(o.Open)}
		})
	}
	var list []tasktype.OpenToken
	for cursor := ""; len(list) < limit; {
		page, next, err := client.OpenTokens(ctx, c.Args().First(), cursor)
		if err != nil {
			return err
		}
		list = append(list, page...)
		if cursor = next; next == "" {
			break
		}
	}
	list = list[:min(limit, len(list))]
	return show(client.env, c, list, []string{"WORKFLOW", "NODE", "ATTEMPT", "FOR", "DEADLINE IN", "INPUT"}, func(o tasktype.OpenToken) []string {
		left := "-"
		if !o.Deadline.IsZero() {
			left = time.Until(o.Deadline).Round(time.Second).String()
		}
		return []string{o.Workflow, o.Node, fmt.Sprint(o.Attempt), elapsed(o.Opened), left, onLine(o.Input)}
	})
}

// onLine returns JSON for a column of a table.
func onLine(raw json.RawMessage) string {
	const most = 60
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "-"
	}
	if r := []rune(b.String()); len(r) > most {
		return string(r[:most]) + "…"
	}
	return b.String()
}

func tokensNew(ctx context.Context, c *cli.Context, client fleet) error {
	token, err := client.NewToken(ctx, c.Args().Get(0), c.Args().Get(1))
	if err != nil {
		return err
	}
	fmt.Fprintln(client.env.stdout, token)
	return nil
}

func tokensComplete(ctx context.Context, c *cli.Context, client fleet) error {
	token, in, err := readToken(client.env)
	if err != nil {
		return err
	}
	value := []byte(c.String("value"))
	if string(value) == "-" {
		if value, err = io.ReadAll(io.LimitReader(in, maxInput+1)); err != nil {
			return fmt.Errorf("read the result: %w", err)
		}
	}
	if len(value) <= maxInput && !json.Valid(value) {
		return usageError{fmt.Errorf("the result is not JSON: %.40q; a string needs quotes: '\"text\"'", value)}
	}
	return done(client.env, client.Complete(ctx, token, value), "completed")
}

func tokensFail(ctx context.Context, c *cli.Context, client fleet) error {
	token, _, err := readToken(client.env)
	if err != nil {
		return err
	}
	cause := errors.New(c.String("message"))
	if c.Bool("permanent") {
		cause = tasks.Permanent(cause)
	}
	if code := c.String("code"); code != "" {
		cause = tasks.WithCode(code, cause)
	}
	return done(client.env, client.Fail(ctx, token, cause), "failed")
}

func tokensExtend(ctx context.Context, c *cli.Context, client fleet) error {
	token, _, err := readToken(client.env)
	if err != nil {
		return err
	}
	return done(client.env, client.Extend(ctx, token, c.Duration("by")), "extended by %s", c.Duration("by"))
}

// readToken returns the token and the rest of standard input.
func readToken(env environment) (string, io.Reader, error) {
	for _, v := range env.environ {
		if token, ok := strings.CutPrefix(v, tokenVar+"="); ok && token != "" {
			return token, env.stdin, nil
		}
	}
	if f, ok := env.stdin.(*os.File); ok && newScreen(f, nil).terminal {
		fmt.Fprint(env.stderr, "token: ")
	}
	in := bufio.NewReaderSize(env.stdin, maxToken)
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil, usageError{fmt.Errorf("read a token from standard input: %w", err)}
	}
	if token := strings.TrimSpace(string(line)); token != "" {
		return token, in, nil
	}
	return "", nil, usageError{fmt.Errorf("no token: set %s, or write it to standard input", tokenVar)}
}
