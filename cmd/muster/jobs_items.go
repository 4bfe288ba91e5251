package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/orchestrator/api/client"
)

func jobsItemsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "items", Usage: "list the items of a job, or compare them with the items of an older job", ArgsUsage: "JOB",
		Description: `Items of two jobs are the same when they have the same key.

    muster jobs items JOB --state review
    muster jobs items JOB --item req-17
    muster jobs items NEW --compare OLD
    muster jobs items JOB --json | jq '.data[].text'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Aliases: []string{"status"}, Usage: "only items in `STATE`: pending, validating, integrated, rejected, failed or review"},
			&cli.StringFlag{Name: "item", Usage: "show all fields of the item `KEY`: its text, state, last error and attempts"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 1000", Value: 100},
			&cli.StringFlag{Name: "cursor", Usage: "continue after a page: `NEXT` of its JSON"},
			&cli.StringFlag{Name: "compare", Usage: "show the differences to the items of `JOB`"},
			&cli.BoolFlag{Name: "all", Usage: "with --compare, show the items that are the same too"},
			jobIDFlag(), serverFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			limit, err := within(c, "limit", 1, 1000)
			if err != nil {
				return err
			}
			return onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j client.Job) error {
				if key := c.String("item"); key != "" {
					it, err := client.GetItem.Call(ctx, s.api, client.ItemPath{JobPath: client.JobPath{ID: j.ID}, Key: key})
					switch {
					case err != nil:
						return err
					case c.Bool("json"):
						return printJSON(env.stdout, it)
					}
					return printFields(env.stdout, it)
				}
				if c.IsSet("compare") {
					return s.compare(ctx, c, j)
				}
				return s.listItems(ctx, c, j, limit)
			})(c)
		},
	}
}

func (s jobScope) listItems(ctx context.Context, c *cli.Context, j client.Job, limit int) error {
	items, next, err := s.api.Items(ctx, j.ID, jobs.ItemStatus(c.String("state")), c.String("cursor"), limit)
	if err != nil {
		return noJobID(j.ID, err)
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, client.Page[jobs.Item]{Data: items, Next: next})
	}
	if len(items) == 0 {
		fmt.Fprintln(s.env.stdout, "No items found")
		return nil
	}
	t := newTable(s.env.stdout, "ITEM", "STATE", "STAGE", "RETRIES", "TEXT")
	for _, it := range items {
		t.row(it.Key, string(it.Status), orDash(it.Stage), fmt.Sprint(it.RetryCount), whatOf(it))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(s.env.stderr, "there are more: --cursor %s\n", next)
	}
	return nil
}

// whatOf describes an item: the reason of its failure, or its name or text.
func whatOf(it jobs.Item) string {
	text := cmp.Or(it.Name, it.Text)
	switch it.Status {
	case jobs.ItemRejected:
		text = cmp.Or(it.RejectionReason, text)
	case jobs.ItemFailed, jobs.ItemReview:
		text = cmp.Or(it.LastError, text)
	}
	return strings.Join(strings.Fields(text), " ")
}

func jobsDecideCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "decide", Usage: "accept or reject items that wait for review", ArgsUsage: "JOB [ITEM…] accept|reject",
		Description: `An item whose last attempt failed waits for review if its stage is so configured.
An accepted item goes to its next stage, or is integrated by its last one.

    muster jobs items JOB --state review
    muster jobs decide JOB R-12 reject --reason 'not in the document'
    muster jobs decide JOB R-13 accept --set '{"external_id": "neo-7"}'
    muster jobs decide JOB --all accept`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "reason", Usage: "why, as `TEXT`; needed to reject"},
			&cli.StringFlag{Name: "set", Usage: "correct fields of the item, given as a `JSON` object"},
			&cli.BoolFlag{Name: "all", Usage: "decide on all items of the job that wait for review"},
			serverFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			least := 3
			if c.Bool("all") {
				least = 2
			}
			if err := arguments(c, least, -1); err != nil {
				return err
			}
			args := c.Args().Slice()
			id, keys, verdict := args[0], args[1:len(args)-1], args[len(args)-1]
			d := client.Decision{Accept: verdict == "accept", Reason: c.String("reason")}
			if set := c.String("set"); set != "" {
				if err := json.Unmarshal([]byte(set), &d.Item); err != nil {
					return usageError{fmt.Errorf("--set: %w", err)}
				}
			}
			switch {
			case verdict != "accept" && verdict != "reject":
				return usageError{fmt.Errorf("invalid decision %q%s; use accept or reject", verdict, suggest(verdict, []string{"accept", "reject"}))}
			case !d.Accept && d.Reason == "":
				return usageError{errors.New("to reject an item needs a --reason")}
			case c.Bool("all") && len(keys) > 0:
				return usageError{errors.New("--all cannot be used together with items")}
			case d.Item != nil && len(keys) != 1:
				return usageError{errors.New("--set corrects one item; name it")}
			}
			return onJobs(env, least, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
				if len(keys) == 1 {
					return s.decide(ctx, c, id, keys[0], d)
				}
				decided, err := client.DecideItems.Call(ctx, s.api, client.ItemDecisions{JobPath: client.JobPath{ID: id}, Body: client.Decisions{Keys: keys, Accept: d.Accept, Reason: d.Reason}})
				return showDone(env, c, decided, noJobID(id, err), "Decided on %d items", decided.Decided)
			})(c)
		},
	}
}

// decide decides on one item.
func (s jobScope) decide(ctx context.Context, c *cli.Context, id, key string, d client.Decision) error {
	it, err := client.DecideItem.Call(ctx, s.api, client.ItemDecision{ItemPath: client.ItemPath{JobPath: client.JobPath{ID: id}, Key: key}, Body: d})
	if hasCode(err, "item_not_found") || hasCode(err, "item_not_in_review") {
		return fmt.Errorf("item %s of job %s: %w; see muster jobs items %s --state review", key, id, err, id)
	}
	return showDone(s.env, c, it, noJobID(id, err), "Item %s: %s", it.Key, it.Status)
}
