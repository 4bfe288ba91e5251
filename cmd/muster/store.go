package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"muster/orchestrator"
	"muster/orchestrator/job"
	"muster/orchestrator/monitor"
	"muster/orchestrator/store"
)

func storeCommand(env environment) *cli.Command {
	return &cli.Command{
		Name:  "store",
		Usage: "manage stored data: check, migrate, export, import, seed",
		Description: `    muster store check
    muster store export --out backup.jsonl --documents backup-documents
    muster store import backup.jsonl --documents backup-documents

Exit codes: 0 done, 1 something is wrong or failed, 2 wrong usage.`,
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "print the schema version of the store, and report damaged records",
				Description: `It compares the records of jobs with their indexes and the counters of their
items, and looks for keys that belong to no job, and for what of agents cannot
be read. Jobs may be at work meanwhile. With --repair it puts right what it
finds, by the records; of agents it removes it, and they register again. A store
of a newer release is only named.

    muster store check --json`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "repair", Usage: "repair damaged records"},
					progressFlag(), jsonFlag(),
				},
				Action: onStore(env, checkStore),
			},
			{
				Name: "migrate", Usage: "bring the store up to the schema of this program",
				Description: `Every start does so by itself. Stop all processes of the older release before.

    muster store migrate --dry-run`,
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "dry-run", Usage: "print the changes without making them"},
					progressFlag(), jsonFlag(),
				},
				Action: onStore(env, migrateStore),
			},
			storeExportCommand(env),
			storeImportCommand(env),
			storeSeedCommand(env),
		},
	}
}

// storeScope has the services that a command on the store uses.
type storeScope struct {
	env    environment
	store  *store.Store
	system *orchestrator.Orchestrator
}

// onStore is the action of a command on a store of any schema.
func onStore(env environment, fn func(context.Context, *cli.Context, storeScope) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := arguments(c, 0, 0); err != nil {
			return err
		}
		loaded, err := loadConfig(env, c)
		if err != nil {
			return err
		}
		if _, ok := given(c, "log-level"); !ok {
			loaded.Log.Level = "warn"
		}
		return withOptions(env, c, loaded, orchestrator.Options{Reuse: true, AnyStore: true},
			func(ctx context.Context, o *orchestrator.Orchestrator, _ *monitor.Display) error {
				return fn(ctx, c, storeScope{env, orchestrator.NewStore(o.Client, nil), o})
			})
	}
}

// storeReport is the JSON of store check.
type storeReport struct {
	store.Status
	job.Checked
	Findings []job.Finding `json:"findings"` // the first 10,000
	Wrong    int           `json:"wrong"`    // findings that were not repaired
}

// maxFindings bounds the findings that are kept for JSON.
const maxFindings = 10_000

// errDamaged is the error of a check that found damage.
var errDamaged = errors.New("something in the store is damaged; see above, and repair it with muster store check --repair")

func checkStore(ctx context.Context, c *cli.Context, s storeScope) error {
	status, err := s.store.Status(ctx)
	if err != nil {
		return err
	}
	out := storeReport{Status: status, Findings: []job.Finding{}}
	asJSON := c.Bool("json")
	if !asJSON {
		s.printStatus(status)
	}
	if status.Newer() {
		if asJSON {
			err = printJSON(s.env.stdout, out)
		}
		return errors.Join(&store.NewerError{Have: status.Schema, Know: status.Known}, err)
	}
	if len(status.Pending) > 0 {
		if asJSON {
			return printJSON(s.env.stdout, out)
		}
		_, err := fmt.Fprintln(s.env.stdout, "Its jobs are checked once it is migrated: muster store migrate")
		return err
	}
	report := func(f job.Finding) error {
		if !f.Repaired {
			out.Wrong++
		}
		if len(out.Findings) < maxFindings {
			out.Findings = append(out.Findings, f)
		}
		if asJSON {
			return nil
		}
		_, err := fmt.Fprintln(s.env.stdout, findingLine(f))
		return err
	}
	archive := job.NewArchive(s.system.Jobs)
	if c.Bool("repair") {
		err = s.store.Hold(ctx, "repairing the store", func(ctx context.Context, lock *store.Lock) error {
			if err := lock.Claim(ctx, job.Slot); err != nil {
				return err
			}
			out.Checked, err = archive.Verify(ctx, lock, report)
			return err
		})
	} else {
		out.Checked, err = archive.Verify(ctx, nil, report)
	}
	if err == nil {
		err = s.system.Agents.Verify(ctx, c.Bool("repair"), report)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(s.env.stdout, out)
	} else {
		_, err = fmt.Fprintf(s.env.stdout, "Checked %d jobs and %d keys: %s\n", out.Jobs, out.Keys, foundText(len(out.Findings), out.Wrong))
	}
	if err == nil && out.Wrong > 0 {
		err = errDamaged
	}
	return err
}

func foundText(found, wrong int) string {
	switch {
	case found == 0:
		return "nothing is wrong"
	case wrong == 0:
		return fmt.Sprintf("%d repaired", found)
	}
	return fmt.Sprintf("%d wrong", wrong)
}

func findingLine(f job.Finding) string {
	var parts []string
	if f.Repaired {
		parts = append(parts, "repaired:")
	}
	if f.Key != "" {
		parts = append(parts, cell(f.Key, 200))
	}
	if f.Job != "" {
		parts = append(parts, "job "+cell(f.Job, 110)+":")
	}
	return strings.Join(append(parts, cell(f.Problem, 500)), " ")
}

// printStatus prints the status of the store.
func (s storeScope) printStatus(st store.Status) {
	w := s.env.stdout
	fmt.Fprintf(w, "Schema: %d; this program knows %d\n", st.Schema, st.Known)
	if st.Locked != "" {
		fmt.Fprintf(w, "Locked: %s\n", st.Locked)
	}
	for _, step := range st.Pending {
		fmt.Fprintf(w, "Migration %d is missing: %s (%d)\n", step.Version, step.Name, step.Changes)
	}
}

func migrateStore(ctx context.Context, c *cli.Context, s storeScope) error {
	status, err := s.store.Status(ctx)
	if err != nil {
		return err
	}
	if !c.Bool("dry-run") {
		if err := s.store.Open(ctx); err != nil {
			return err
		}
	} else if status.Newer() {
		return &store.NewerError{Have: status.Schema, Know: status.Known}
	}
	if c.Bool("json") {
		return printJSON(s.env.stdout, status)
	}
	if c.Bool("dry-run") {
		s.printStatus(status)
		if len(status.Pending) == 0 {
			fmt.Fprintln(s.env.stdout, "Nothing to migrate")
		}
		return nil
	}
	for _, step := range status.Pending {
		fmt.Fprintf(s.env.stdout, "Migration %d: %s (%d)\n", step.Version, step.Name, step.Changes)
	}
	_, err = fmt.Fprintf(s.env.stdout, "The store has schema %d\n", s.store.Schema())
	return err
}
