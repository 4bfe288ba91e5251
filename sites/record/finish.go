package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/internal/lines"
	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/report"
	"muster/sites/sink"
)

// ReportFile is the name of the file with the summary in a job's directory.
const ReportFile = "report.json"

// finish writes the remaining records of a job with only terminal pages, closes its files, and adds the results of the files to
// the summary. It is idempotent, also after a crash.
func (w *writer) finish(ctx context.Context, sum report.Summary) (report.Summary, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.hold(ctx, func(ctx context.Context) error {
		if closed, ok, err := store.ReadJSON[report.Summary](ctx, w.rdb, store.SummaryKey(w.run)); err != nil || ok {
			sum = closed
			return err
		}
		notes, err := w.out.Notes(ctx)
		if err != nil {
			return err
		}
		data := notes[store.ClosedNote+w.run] // stored by a writer that stopped afterwards
		if data == "" {
			if data, err = w.closeJob(ctx, sum); err != nil {
				return err
			}
		}
		if err := json.Unmarshal([]byte(data), &sum); err != nil {
			return fmt.Errorf("read the summary of job %s: %w", w.run, err)
		}
		if err := w.announce(ctx, sum.Health); err != nil {
			return err
		}
		if err := w.rdb.SetNX(ctx, store.SummaryKey(w.run), data, store.Keep).Err(); err != nil {
			return fmt.Errorf("store the summary of job %s: %w", w.run, err)
		}
		if err := w.rdb.Del(ctx, store.KnownKey(w.id)).Err(); err != nil {
			w.log.WarnContext(ctx, "the pages of the ledger remain in Redis for a week", "error", err)
		}
		return w.closeAll()
	})
	return sum, err
}

// closeJob closes the files and returns the summary after storing it. From then on it is the summary of the job for all writers.
func (w *writer) closeJob(ctx context.Context, sum report.Summary) (string, error) {
	if _, err := w.writeAll(ctx); err != nil {
		return "", err
	}
	w.sinks.next = 0
	if err := w.complete(ctx, &sum); err != nil {
		return "", w.report(ctx, err)
	}
	data, err := json.Marshal(sum)
	if err != nil {
		return "", fmt.Errorf("encode the summary: %w", err)
	}
	notes := map[string]string{store.TroubleNote: "", store.ClosedNote + w.run: string(data)}
	for typ, n := range sum.ByType {
		notes[typ] = strconv.Itoa(n)
	}
	err = w.out.Ack(ctx, "", notes)
	if err == nil {
		clear(w.sinks.delivered)
	}
	return string(data), err
}

// announce reports the health of the site. If a writer stops in the middle, the next one repeats it.
func (w *writer) announce(ctx context.Context, h report.Health) error {
	if w.judged == nil {
		return nil
	}
	all, err := store.HealthOf(ctx, w.rdb, w.def.Site)
	if err != nil {
		return err
	}
	return w.judged(ctx, h, store.StatusBefore(all, w.run))
}

// complete writes the files at the end of a job and completes the summary.
func (w *writer) complete(ctx context.Context, sum *report.Summary) error {
	for _, step := range []func(context.Context, *report.Summary) error{
		w.countRecords, w.updateLedgers, w.countChanges, w.writeCSV, w.upload, w.writeFailed, w.judge, w.writeReport,
	} {
		if err := step(ctx, sum); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) countRecords(ctx context.Context, sum *report.Summary) error {
	sum.ByType, sum.Files, sum.Records = map[string]int{}, nil, 0
	for _, r := range w.def.Records {
		f, err := w.files.file(r.Name) // create empty files, too
		if err != nil {
			return err
		}
		sum.ByType[r.Name] = f.Count()
		sum.Records += f.Count()
		sum.Files = append(sum.Files, f.Path())
	}
	return nil
}

// updateLedgers stores the records of the job for comparison with the next job.
func (w *writer) updateLedgers(ctx context.Context, sum *report.Summary) error {
	if !w.def.Refetch.IsZero() {
		if _, err := w.files.file(store.PageType); err != nil { // a job without detail pages has none
			return err
		}
	}
	for _, f := range w.files.records {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := closeEach(w.files.books); err != nil {
		return err
	}
	complete := w.req.Limit == 0 && sum.HasEverything()
	for _, r := range w.def.Records {
		job := ledger.Job{Run: w.run, At: time.Now(), Records: w.files.path(r.Name), Watch: r.Watch, Complete: complete}
		if err := w.updateLedger(ctx, r.Name, job); err != nil {
			return err
		}
	}
	if w.def.Refetch.IsZero() {
		return nil
	}
	job := ledger.Job{Run: w.run, At: time.Now(), Records: w.files.path(store.PageType), Watch: w.files.watch[store.PageType], Complete: complete}
	return ledger.Update(w.files.ledgerPath(store.PageType), job, func(ledger.Entry) error { return nil })
}

// updateLedger updates the ledger of one type and writes the missing records to changes.jsonl and the sinks.
func (w *writer) updateLedger(ctx context.Context, typ string, job ledger.Job) error {
	var gone []sink.Record
	flush := func() error {
		err := w.writeGone(ctx, gone)
		gone = gone[:0]
		return err
	}
	err := ledger.Update(w.files.ledgerPath(typ), job, func(e ledger.Entry) error {
		var h head
		if err := json.Unmarshal(e.Record, &h); err != nil {
			return fmt.Errorf("read record %s of the ledger: %w", e.Key, err)
		}
		gone = append(gone, sink.Record{Site: w.def.Site, Job: w.id, Type: typ, Key: e.Key, URL: h.URL, Data: e.Record, Change: string(ledger.Gone), At: job.At})
		if len(gone) == writeBatch {
			return flush()
		}
		return nil
	})
	return errors.Join(err, flush())
}

func (w *writer) writeGone(ctx context.Context, gone []sink.Record) error {
	if len(gone) == 0 {
		return nil
	}
	for _, r := range gone {
		if err := w.files.putChange(r); err != nil {
			return err
		}
	}
	if err := w.files.changes.Sync(); err != nil {
		return err
	}
	return w.sinks.put(ctx, gone)
}

// countChanges counts the changes in changes.jsonl.
func (w *writer) countChanges(_ context.Context, sum *report.Summary) error {
	sum.Changes = report.Changes{Unchanged: sum.Records}
	for line, err := range lines.File(w.files.changesPath()) {
		sum.Changes.File = w.files.changesPath()
		var c changeLine
		if err == nil {
			err = json.Unmarshal(line, &c)
		}
		if err != nil {
			return fmt.Errorf("count changes: %w", err)
		}
		switch ledger.Change(c.Change) {
		case ledger.New:
			sum.Changes.New++
		case ledger.Changed:
			sum.Changes.Changed++
		case ledger.Gone:
			sum.Changes.Gone++
		}
	}
	sum.Changes.Unchanged -= sum.Changes.New + sum.Changes.Changed
	return nil
}

func (w *writer) writeCSV(ctx context.Context, sum *report.Summary) error {
	if !w.req.CSV {
		return nil
	}
	for i := range w.def.Records {
		r := &w.def.Records[i]
		columns := append([]sink.Column{{"_key"}, {"_url"}}, sink.Columns(r.Fields)...)
		path := filepath.Join(w.files.dir, r.Name+".csv")
		if err := sink.WriteCSV(w.files.path(r.Name), path, columns); err != nil {
			return err
		}
		sum.Files = append(sum.Files, path)
	}
	return nil
}

// upload stores the finished files in the sinks for files, below the site and the job.
func (w *writer) upload(ctx context.Context, sum *report.Summary) error {
	files := sum.Files
	if sum.Changes.File != "" {
		files = append(slices.Clone(files), sum.Changes.File)
	}
	for _, file := range files {
		if err := w.sinks.upload(ctx, file, path.Join(w.def.Site, w.id, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// judge adds the health of the site to the summary and stores it for comparison with the next job.
func (w *writer) judge(ctx context.Context, sum *report.Summary) error {
	sum.Seconds = time.Since(time.UnixMilli(w.req.Began)).Seconds()
	before, err := store.HealthOf(ctx, w.rdb, w.def.Site)
	if err != nil {
		return err
	}
	before = slices.DeleteFunc(before, func(h report.Health) bool { return h.JobID == w.run })
	sum.Health = report.Judge(w.def, sum, w.req.Limit > 0, time.Now(), before)
	if err := store.SaveHealth(ctx, w.rdb, sum.Health, before); err != nil {
		return err
	}
	if sum.Health.Status != report.Healthy {
		w.log.WarnContext(ctx, "the site is not healthy", "health", sum.Health.Status, "alerts", sum.Health.Alerts)
	}
	if len(sum.Health.Notices) > 0 {
		w.log.WarnContext(ctx, "records of the site are incomplete", "notices", sum.Health.Notices)
	}
	return nil
}

// writeReport writes the summary next to the records, as JSON and as text.
func (w *writer) writeReport(ctx context.Context, sum *report.Summary) error {
	data, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	for name, text := range map[string][]byte{ReportFile: append(data, '\n'), "report.txt": []byte(sum.Text())} {
		if err := atomicfile.WriteBytes(filepath.Join(w.files.dir, name), 0o600, text); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}
