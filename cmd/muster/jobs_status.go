package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"muster/jobs"
	"muster/jobs/pipeline"
	"muster/orchestrator/api/client"
	"muster/orchestrator/monitor"
)

func jobsStatusCommand(env environment) *cli.Command {
	return jobCommand(env, &cli.Command{
		Name: "status", ArgsUsage: "JOB",
		Usage: "show the progress of a job",
		Description: `    muster jobs status JOB
    muster jobs status JOB --progress      with the time that is left
    muster jobs status JOB --wait          until it has ended
    muster jobs status JOB --failed        the items that failed, and why
    muster jobs status JOB --csv > items.csv

With --wait the exit code is 1 unless the job is completed without failed items.
A job without progress for its time stuck_after ends the wait; it is not cancelled.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "progress", Usage: "show the progress with an estimate of the remaining time"},
			&cli.BoolFlag{Name: "report", Usage: "print the full report; with --json also all items"},
			&cli.BoolFlag{Name: "csv", Usage: "print the items as CSV"},
			&cli.BoolFlag{Name: "rejected", Usage: "list rejected items"},
			&cli.BoolFlag{Name: "failed", Usage: "list failed items"},
			&cli.StringFlag{Name: "fail-on", Value: "failed", Usage: "with --wait, exit 1 on `WHAT`: failed for failed items, never to ignore them"},
			programFlag("wait"), programFlag("timeout"), jsonFlag(),
		},
		Before: requires("wait", "fail-on"),
	}, func(s scope, j client.Job) error {
		if s.Bool("wait") {
			return s.waited(j)
		}
		return s.showStatus(j)
	})
}

// showStatus prints the parts of a job that the flags of jobs status select.
func (s scope) showStatus(j client.Job) error {
	parts := 0
	for _, name := range []string{"progress", "report", "csv", "rejected", "failed"} {
		if s.Bool(name) {
			parts++
		}
	}
	switch {
	case parts > 1:
		return usageError{errors.New("jobs status: use one of --progress, --report, --csv, --rejected and --failed")}
	case s.Bool("progress"):
		return s.showProgress(j)
	case s.Bool("report"):
		format := "text"
		if s.Bool("json") {
			format = "json"
		}
		return s.api.WriteJobReport(s.ctx, s.env.stdout, j.ID, format)
	case s.Bool("csv"):
		return s.api.WriteJobReport(s.ctx, s.env.stdout, j.ID, "csv")
	case s.Bool("rejected"):
		return s.showEnded(j, jobs.ItemRejected)
	case s.Bool("failed"):
		return s.showEnded(j, jobs.ItemFailed)
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, j)
	}
	p, err := client.GetJobProgress.Call(s.ctx, s.api, client.JobPath{ID: j.ID})
	if err != nil {
		return noJobID(j.ID, err)
	}
	f := newFacts(s.env)
	f.job(j.Job)
	fmt.Fprintln(f)
	f.times(p)
	return f.Flush()
}

// facts writes lines of a name and a value, aligned. Flush writes the last ones.
type facts struct {
	*tabwriter.Writer
	screen *screen
}

func newFacts(env environment) facts {
	return facts{tabwriter.NewWriter(env.stdout, 0, 0, 1, ' ', 0), screenOf(env.stdout)}
}

// line adds a line, unless the value is empty.
func (f facts) line(name, value string) {
	if value = strings.Join(strings.Fields(value), " "); value != "" {
		fmt.Fprintf(f, "%s:\t%s\n", printable(name), value)
	}
}

// at adds a line with a time, unless it is zero.
func (f facts) at(name string, t time.Time) {
	if !t.IsZero() {
		f.line(name, t.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// job adds the state of a job.
func (f facts) job(j jobs.Job) {
	f.line("Job ID", j.ID)
	f.line("Pipeline", printable(j.Name))
	f.line("Status", f.screen.state(string(j.Status)))
	f.line("Waiting", printable(j.Waiting))
	for _, st := range j.Stages {
		f.line(stageTitle(j.Name, st)+" Status", stageText(st, f.screen))
	}
	f.line("Prompt", cell(j.Prompt, shownPrompt))
	if d := j.Document; d != nil {
		f.line("Document", fmt.Sprintf("%s (%d bytes)", printable(d.Name), d.Size))
	}
	if j.Priority != 0 {
		f.line("Priority", fmt.Sprint(j.Priority))
	}
	f.line("Labels", printable(strings.Join(j.Labels, ", ")))
	f.line("After", strings.Join(j.After, ", "))
	f.line("Version of", j.VersionOf)
	f.at("Begins", j.At)
	f.at("Created", j.CreatedAt)
	f.at("Started", j.StartedAt)
	f.at("Completed", j.CompletedAt)
	fmt.Fprintln(f, "\nItems:")
	f.counts(j.Items)
	f.line("  Progress", fmt.Sprintf("%.1f%%", 100*float64(j.Items.Processed())/float64(max(j.Items.Total, 1))))
	if j.ErrorMessage != "" {
		fmt.Fprintln(f)
		f.line("Error", printable(j.ErrorMessage))
	}
}

// counts adds the items of a job by state.
func (f facts) counts(n jobs.Counts) {
	for _, c := range []struct {
		name  string
		n     int64
		shown bool
	}{
		{"Total", n.Total, true}, {"Integrated", n.Integrated, true}, {"Pending", n.Pending, true}, {"Validating", n.Validating, n.Validating > 0},
		{"Rejected", n.Rejected, true}, {"Failed", n.Failed, true}, {"Review", n.Review, n.Review > 0},
	} {
		if c.shown {
			f.line("  "+c.name, fmt.Sprint(c.n))
		}
	}
}

// stageTitle names a stage: by its role in the default pipeline.
func stageTitle(of string, st jobs.Stage) string {
	name := st.Name
	if of == pipeline.Default && st.Role != "" {
		name = st.Role
	}
	return strings.ToUpper(name[:min(1, len(name))]) + name[min(1, len(name)):]
}

// stageText is the state of a stage with its details.
func stageText(st jobs.Stage, s *screen) string {
	text := s.state(string(st.Status))
	var more []string
	if st.Agent != "" {
		more = append(more, "agent "+printable(st.Agent))
	}
	if st.Pending > 0 {
		more = append(more, fmt.Sprintf("%d items pending", st.Pending))
	}
	if st.Processing > 0 {
		more = append(more, fmt.Sprintf("%d in work", st.Processing))
	}
	switch {
	case st.Error != "" && st.Attempts > 0:
		more = append(more, fmt.Sprintf("attempt %d failed: %s", st.Attempts, cell(st.Error, 200)))
	case st.Error != "": // permanently, by its first attempt
		more = append(more, cell(st.Error, 200))
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return text
}

// showProgress prints how far a job is, and how long the rest may take.
func (s scope) showProgress(j client.Job) error {
	p, err := client.GetJobProgress.Call(s.ctx, s.api, client.JobPath{ID: j.ID})
	if err != nil {
		return noJobID(j.ID, err)
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, p)
	}
	f := newFacts(s.env)
	f.progress(p)
	return f.Flush()
}

func (f facts) progress(p jobs.Progress) {
	f.line("Job ID", p.JobID)
	f.line("Status", f.screen.state(string(p.Status)))
	f.line("Progress", fmt.Sprintf("%.1f%%", p.Percent))
	f.counts(p.Items)
	f.line("Waiting", printable(p.Waiting))
	f.times(p)
}

// times adds the duration of a job, and the estimated rest.
func (f facts) times(p jobs.Progress) {
	f.line("Elapsed", lasted(p.ElapsedSeconds))
	switch {
	case p.ETASeconds != nil:
		f.line("ETA", lasted(*p.ETASeconds))
	case !p.Status.Terminal():
		f.line("ETA", "unknown")
	}
	if p.PerMinute > 0 {
		f.line("Pace", fmt.Sprintf("%.1f items a minute", p.PerMinute))
	}
	if st := p.Stuck; st != nil {
		f.line("Stuck", fmt.Sprintf("in %s since %s: %s", st.Stage, st.Since.Local().Format("2006-01-02 15:04:05 MST"), printable(st.Reason)))
	}
}

// lasted is a time in seconds, in hours where it is long.
func lasted(seconds float64) string {
	if seconds >= 3600 {
		return fmt.Sprintf("%.1f hours", seconds/3600)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// showEnded lists the items of a job that ended in a state.
func (s scope) showEnded(j client.Job, status jobs.ItemStatus) error {
	items, err := client.All(s.ctx, s.api, client.ListItems, client.ItemFilter{JobPath: client.JobPath{ID: j.ID}, Status: string(status), Limit: 1000}, 0)
	if err != nil {
		return noJobID(j.ID, err)
	}
	if s.Bool("json") {
		return printJSON(s.env.stdout, client.Page[jobs.Item]{Data: items})
	}
	return printEnded(s.env, status, items)
}

func printEnded(env environment, status jobs.ItemStatus, items []jobs.Item) error {
	f := newFacts(env)
	fmt.Fprintf(f, "%s Items (%d):\n", map[jobs.ItemStatus]string{jobs.ItemRejected: "Rejected", jobs.ItemFailed: "Failed"}[status], len(items))
	for _, it := range items {
		fmt.Fprintln(f)
		f.line("  ID", it.Key)
		f.line("  Name", it.Name)
		if status == jobs.ItemRejected {
			f.line("  Reason", it.RejectionReason)
		} else {
			f.line("  Error", it.LastError)
			f.line("  Retries", fmt.Sprint(it.RetryCount))
		}
		f.line("  Text", cell(it.Text, 200))
	}
	return f.Flush()
}

// waitEvery is how often the progress of a job that is waited for is read, in addition to after each event.
const waitEvery = 2 * time.Second

// waited waits for a job and shows it. It returns an error unless the job is completed and, depending on --fail-on, without
// failed items.
func (s scope) waited(j client.Job) error {
	failOn := s.String("fail-on")
	if err := oneOf("fail-on", failOn, []string{"failed", "never"}); err != nil {
		return err
	}
	id := j.ID
	j, err := s.wait(j)
	if err != nil {
		return withState(s.ctx, err, "the job is not cancelled; wait again with muster jobs status %s --wait, or end it with muster jobs cancel %s", id, id)
	}
	err = errors.Join(s.showStatus(j), notCompleted(j))
	if failOn == "failed" && j.Status == jobs.Completed && j.Items.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("job %s: %d items failed; see muster jobs status --failed %s, or ignore them with --fail-on never", id, j.Items.Failed, id))
	}
	return err
}

// stuckError ends the wait for a job that makes no progress.
type stuckError struct{ jobs.Stuck }

func (e *stuckError) Error() string {
	return fmt.Sprintf("job %s is stuck in stage %s: %s; it is not cancelled, see muster jobs status %s", e.JobID, e.Stage, e.Reason, e.JobID)
}

// wait shows the progress of a job until it has ended or is stuck.
func (s scope) wait(j client.Job) (client.Job, error) {
	defer s.display.Close()
	track := s.display.Track(trackName(j))
	ended, err := s.api.WaitJob(s.ctx, j.ID, waitEvery, func(p jobs.Progress) error {
		if track.Update(trackOf(p)); p.Stuck != nil {
			return &stuckError{*p.Stuck}
		}
		return nil
	})
	switch {
	case errors.As(err, new(*stuckError)):
		track.Fail("stuck; the job is not cancelled")
	case s.ctx.Err() != nil:
		err = context.Cause(s.ctx)
		track.Fail(err.Error() + "; the job is not cancelled")
		err = fmt.Errorf("wait for job %s: %w; the job is not cancelled, see muster jobs status %s", j.ID, err, j.ID)
	case err != nil:
		track.Fail(err.Error())
		err = noJobID(j.ID, err)
	case ended.Status == jobs.Completed:
		track.Done(string(ended.Status))
	default:
		track.Fail(endText(ended))
	}
	return ended, err
}

// trackName is the name of a job in the progress output.
func trackName(j client.Job) string {
	return j.Name + " " + j.ID[:min(8, len(j.ID))]
}

// trackOf is the progress of a job as a display shows it.
func trackOf(p jobs.Progress) monitor.Progress {
	n := p.Items
	out := monitor.Progress{
		Done: n.Processed(), Total: n.Total, Unit: "items",
		Note: fmt.Sprintf("Progress: %.1f%% | Integrated: %d | Pending: %d | Rejected: %d", p.Percent, n.Integrated, n.Pending, n.Rejected),
	}
	if n.Failed > 0 {
		out.Note += fmt.Sprintf(" | Failed: %d", n.Failed)
	}
	if p.ETASeconds != nil {
		out.Note += ", " + lasted(*p.ETASeconds) + " left"
	}
	if p.Waiting != "" {
		out.Note = "waiting: " + p.Waiting + ", " + out.Note
	}
	return out
}

// notCompleted is the error for a job that ended otherwise.
func notCompleted(j client.Job) error {
	if j.Status == jobs.Completed {
		return nil
	}
	return fmt.Errorf("job %s %s", j.ID, endText(j))
}

// endText describes the final state of a job.
func endText(j client.Job) string {
	if j.ErrorMessage != "" {
		return string(j.Status) + ": " + j.ErrorMessage
	}
	return string(j.Status)
}
