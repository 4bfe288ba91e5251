package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/internal/nearest"
	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsItemsCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "items", Usage: "list the items of a job, or compare them with the items of an older job", ArgsUsage: "JOB [ITEM]",
		Description: `With ITEM it shows all fields of this one: its text, state, last error and attempts. Items of two jobs are the same when they have the same key.

    muster jobs items JOB --state review
    muster jobs items JOB req-17
    muster jobs items NEW --compare OLD
    muster jobs items JOB --json | jq '.data[].text'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Aliases: []string{"status"}, Usage: "only items in `STATE`: pending, validating, integrated, rejected, failed or review"},
			&cli.StringFlag{Name: "compare", Usage: "show the differences to the items of `JOB`"},
			jobIDFlag(), jsonFlag(),
		},
	}, func(s scope, in client.ItemFilter) error {
		if key := s.Args().Get(1); key != "" {
			it, err := client.GetItem.Call(s.ctx, s.api, client.ItemPath{JobPath: in.JobPath, Key: key})
			if err != nil {
				return noJobID(in.ID, err)
			}
			return s.showFields(it)
		}
		if s.IsSet("compare") {
			return s.compare(in.ID)
		}
		return noJobID(in.ID, printAll(s, client.ListItems, in, "No items found", "ITEM STATE STAGE RETRIES TEXT", func(it jobs.Item) []any {
			return []any{it.Key, it.Status, it.Stage, it.RetryCount, whatOf(it)}
		}))
	})
}

// whatOf is the summary of an item in one line.
func whatOf(it jobs.Item) string { return strings.Join(strings.Fields(it.Summary()), " ") }

func jobsDecideCommand(env environment) *cli.Command {
	return apiCommand(env, &cli.Command{
		Name: "decide", Usage: "accept or reject items that wait for review", ArgsUsage: "JOB [ITEM…] accept|reject",
		Description: `An item whose last attempt failed waits for review if its stage is so configured.
An accepted item goes to its next stage, or is integrated by its last one.

    muster jobs items JOB --state review
    muster jobs decide JOB R-12 reject --reason 'not in the document'
    muster jobs decide JOB R-13 accept --set '{"external_id": "neo-7"}'
    muster jobs decide JOB --all accept`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "decide on all items of the job that wait for review"}, jsonFlag(),
		},
		Before: func(c *cli.Context) error {
			if c.NArg() == 2 && !c.Bool("all") {
				return usageError{fmt.Errorf("not enough arguments; usage: %s", usageOf(c.Command))}
			}
			return nil
		},
	}, decideItems)
}

// jobDecision is the input of jobs decide.
type jobDecision struct {
	client.JobPath
	client.Decision
}

func decideItems(s scope, input jobDecision) error {
	args := s.Args().Slice()
	keys, verdict, in, d := args[1:len(args)-1], args[len(args)-1], input.JobPath, input.Decision
	d.Accept = verdict == "accept"
	switch {
	case verdict != "accept" && verdict != "reject":
		return usageError{fmt.Errorf("invalid decision %q%s; use accept or reject", verdict, nearest.Hint(verdict, []string{"accept", "reject"}))}
	case !d.Accept && d.Reason == "":
		return usageError{errors.New("to reject an item needs a --reason")}
	case s.Bool("all") && len(keys) > 0:
		return usageError{errors.New("--all cannot be used together with items")}
	case d.Item != nil && len(keys) != 1:
		return usageError{errors.New("--set corrects one item; name it")}
	case len(keys) == 1:
		it, err := client.DecideItem.Call(s.ctx, s.api, client.ItemDecision{ItemPath: client.ItemPath{JobPath: in, Key: keys[0]}, Body: d})
		if hasCode(err, "item_not_found") || hasCode(err, "item_not_in_review") {
			return fmt.Errorf("item %s of job %s: %w; see muster jobs items %s --state review", keys[0], in.ID, err, in.ID)
		}
		return showDone(s, it, noJobID(in.ID, err), "Item %s: %s", it.Key, it.Status)
	}
	decided, err := client.DecideItems.Call(s.ctx, s.api, client.ItemDecisions{JobPath: in, Body: client.Decisions{Keys: keys, Accept: d.Accept, Reason: d.Reason}})
	return showDone(s, decided, noJobID(in.ID, err), "Decided on %d items", decided.Decided)
}

// compare compares the items of a job with the items of the older job of --compare.
func (s scope) compare(id string) error {
	compared, err := client.CompareJobs.Call(s.ctx, s.api, client.JobComparison{JobPath: client.JobPath{ID: s.String("compare")}, Other: id})
	if err != nil {
		return noJobID(id, err)
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, compared)
	}
	return s.printComparison(compared)
}

func (s scope) printComparison(compared client.Comparison) error {
	if len(compared.Differences) > 0 {
		t := newTable(s.env.stdout, "CHANGE ITEM TEXT")
		for _, d := range compared.Differences {
			text := ""
			if it := cmp.Or(d.B, d.A); it != nil {
				text = whatOf(*it)
			}
			t.row(d.Change, d.Key, text)
		}
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(s.env.stdout)
	}
	n := compared.Counts
	return done(s.env, nil, "%d new, %d gone, %d changed, %d same", n["new"], n["gone"], n["changed"], n["same"])
}
