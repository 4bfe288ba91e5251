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
)

func jobsItemsCommand(env environment) *cli.Command {
	return &cli.Command{
		Name: "items", Usage: "list the items of a job", ArgsUsage: "JOB",
		Description: `    muster jobs items JOB --state review
    muster jobs items JOB --json | jq '.items[].text'`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "state", Aliases: []string{"status"}, Usage: "only items in `STATE`: pending, validating, integrated, rejected, failed or review"},
			&cli.IntFlag{Name: "limit", Usage: "at most `N`, from 1 to 1000", Value: 100},
			&cli.StringFlag{Name: "cursor", Usage: "continue after a page: `NEXT` of its JSON"},
			jobIDFlag(), progressFlag(), watchFlag(), jsonFlag(),
		},
		Action: func(c *cli.Context) error {
			limit, err := within(c, "limit", 1, 1000)
			if err != nil {
				return err
			}
			if err := oneOf("state", c.String("state"), jobs.ItemStatuses); err != nil {
				return err
			}
			return onJob(env, func(ctx context.Context, c *cli.Context, s jobScope, j jobs.Job) error {
				if err := hasItems(j); err != nil {
					return err
				}
				return s.listItems(ctx, c, j, jobs.ItemFilter{Status: jobs.ItemStatus(c.String("state")), Cursor: c.String("cursor"), Limit: limit})
			})(c)
		},
	}
}

// hasItems returns an error for a job whose items are not kept with it.
func hasItems(j jobs.Job) error {
	switch j.Kind {
	case jobs.KindPipeline:
		return nil
	case jobs.KindScrape:
		return fmt.Errorf("job %s is a scrape: it has pages instead of items, and its report lists failed pages; see muster jobs status %s", j.ID, j.ID)
	}
	return fmt.Errorf("job %s is a refresh of the proxies: it has no items; see muster proxies list", j.ID)
}

func (s jobScope) listItems(ctx context.Context, c *cli.Context, j jobs.Job, f jobs.ItemFilter) error {
	all, limit := jobs.ItemPage{Items: []jobs.Item{}}, f.Limit
	for len(all.Items) < limit { // a page may be short
		f.Limit = limit - len(all.Items)
		page, err := s.jobs.Items(ctx, j.ID, f)
		if err != nil {
			return noJobID(j.ID, err)
		}
		all.Items = append(all.Items, page.Items...)
		if all.Next = page.Next; page.Next == "" {
			break
		}
		f.Cursor = page.Next
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, all)
	}
	if len(all.Items) == 0 {
		fmt.Fprintln(s.env.stdout, "No items found")
		return nil
	}
	t := newTable(s.env.stdout, "ITEM", "STATE", "STAGE", "RETRIES", "TEXT")
	for _, it := range all.Items {
		t.row(it.Key, string(it.Status), orDash(it.Stage), fmt.Sprint(it.RetryCount), whatOf(it))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if all.Next != "" {
		fmt.Fprintf(s.env.stderr, "there are more: --cursor %s\n", all.Next)
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
			&cli.StringFlag{Name: "by", Usage: "the `NAME` of who decides", DefaultText: "the user"},
			progressFlag(), jsonFlag(),
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
			d := jobs.Decision{Accept: verdict == "accept", Reason: c.String("reason"), By: cmp.Or(c.String("by"), userOf(env)), Patch: json.RawMessage(c.String("set"))}
			switch {
			case verdict != "accept" && verdict != "reject":
				return usageError{fmt.Errorf("invalid decision %q%s; use accept or reject", verdict, suggest(verdict, []string{"accept", "reject"}))}
			case !d.Accept && d.Reason == "":
				return usageError{errors.New("to reject an item needs a --reason")}
			case c.Bool("all") && len(keys) > 0:
				return usageError{errors.New("--all cannot be used together with items")}
			}
			return onJobs(env, least, -1, func(ctx context.Context, c *cli.Context, s jobScope) error {
				if len(keys) == 1 {
					return s.decide(ctx, c, id, keys[0], d)
				}
				n, err := s.jobs.DecideAll(ctx, id, keys, d)
				if err != nil {
					return noJobID(id, err)
				}
				if c.Bool("json") {
					return printJSON(env.stdout, decidedResult{n})
				}
				fmt.Fprintf(env.stdout, "Decided on %d items\n", n)
				return nil
			})(c)
		},
	}
}

// decidedResult is the JSON result of jobs decide for several items.
type decidedResult struct {
	Decided int `json:"decided"`
}

// decide decides on one item.
func (s jobScope) decide(ctx context.Context, c *cli.Context, id, key string, d jobs.Decision) error {
	it, err := s.jobs.Decide(ctx, id, key, d)
	switch {
	case errors.Is(err, jobs.ErrNoItem):
		return fmt.Errorf("item %s of job %s: %w; see muster jobs items %s --state review", key, id, jobs.ErrNoItem, id)
	case errors.Is(err, jobs.ErrNotReview):
		return fmt.Errorf("item %s of job %s: %w; see muster jobs items %s --state review", key, id, jobs.ErrNotReview, id)
	case err != nil:
		return noJobID(id, err)
	case c.Bool("json"):
		return printJSON(s.env.stdout, it)
	}
	fmt.Fprintf(s.env.stdout, "Item %s: %s\n", it.Key, it.Status)
	return nil
}

// userOf is the name of the user of the process.
func userOf(env environment) string {
	for _, v := range env.environ {
		for _, name := range []string{"USER=", "LOGNAME=", "USERNAME="} {
			if user, ok := strings.CutPrefix(v, name); ok && user != "" {
				return user
			}
		}
	}
	return "command line"
}
