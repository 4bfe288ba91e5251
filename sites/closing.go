package sites

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/atomicfile"
	"muster/sites/internal/store"
	"muster/sites/ledger"
	"muster/sites/report"
	"muster/sites/sink"
)

// closeFiles writes what is left of a job and closes its books: it tells what
// is gone, writes the files that are made at the end, and adds to the summary
// what only the files know. Done again, as after a crash, it comes to the same.
func (j *job) closeFiles(ctx context.Context, sum report.Summary) (report.Summary, error) {
	w := j.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.hold(ctx, func(ctx context.Context) error {
		if closed, ok, err := j.closed(ctx); err != nil || ok {
			sum = closed
			return err
		}
		notes, err := w.out.Notes(ctx)
		if err != nil {
			return err
		}
		data := notes[closedNote+j.run] // by a writer that came no further
		if data == "" {
			if data, err = j.closeAs(ctx, sum); err != nil {
				return err
			}
		}
		if err := json.Unmarshal([]byte(data), &sum); err != nil {
			return fmt.Errorf("read the summary of job %s: %w", j.run, err)
		}
		if err := j.rdb.SetNX(ctx, store.SummaryKey(j.run), data, store.Keep).Err(); err != nil {
			return fmt.Errorf("store the summary of job %s: %w", j.run, err)
		}
		j.alert(ctx, sum.Health)
		return w.close()
	})
	return sum, err
}

// closeAs closes the files, and returns the summary when it is noted: from then
// on it is the one of the job, whoever writes.
func (j *job) closeAs(ctx context.Context, sum report.Summary) (string, error) {
	w := j.writer
	if _, err := w.drain(ctx); err != nil {
		return "", err
	}
	if err := j.closeWith(ctx, &sum); err != nil {
		return "", errors.Join(err, w.trouble(ctx, err))
	}
	data, err := json.Marshal(sum)
	if err != nil {
		return "", fmt.Errorf("encode the summary: %w", err)
	}
	notes := map[string]string{troubleNote: "", closedNote + j.run: string(data)}
	for typ, n := range sum.ByType {
		notes[typ] = strconv.Itoa(n)
	}
	return string(data), w.mine(w.reader.Ack(ctx, "", notes))
}

// alert tells of a site that is not healthy, as well as it can.
func (j *job) alert(ctx context.Context, h report.Health) {
	if j.alerts == "" || h.Status == report.Healthy {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := sink.Notify(ctx, j.alerts, j.writer.opts, h); err != nil {
		j.log.Warn("nobody hears that the site is not healthy", "error", err)
	}
}

// closed reads the summary of a job whose files are closed.
func (j *job) closed(ctx context.Context) (report.Summary, bool, error) {
	return store.ReadJSON[report.Summary](ctx, j.rdb, store.SummaryKey(j.run))
}

func (j *job) closeWith(ctx context.Context, sum *report.Summary) error {
	w := j.writer
	sum.ByType, sum.Files, sum.Records = map[string]int{}, nil, 0
	for _, r := range j.def.Records {
		f, err := w.file(ctx, r.Name) // each is there, even when it is empty
		if err != nil {
			return err
		}
		sum.ByType[r.Name] = f.Count()
		sum.Records += f.Count()
		sum.Files = append(sum.Files, f.Path())
	}
	if err := j.roll(ctx, sum); err != nil {
		return err
	}
	if err := j.countChanges(sum); err != nil {
		return err
	}
	if j.req.CSV {
		for i := range j.def.Records {
			r := &j.def.Records[i]
			columns := []string{"_key", "_url"}
			for _, f := range r.Fields {
				columns = append(columns, f.Name)
			}
			path := filepath.Join(w.dir, r.Name+".csv")
			if err := sink.WriteCSV(w.path(r.Name), path, columns, w.fence(ctx)); err != nil {
				return err
			}
			sum.Files = append(sum.Files, path)
		}
	}
	if j.req.Compress != "" {
		for i, path := range sum.Files {
			if f := w.files[strings.TrimSuffix(filepath.Base(path), ".jsonl")]; f != nil && f.Path() == path {
				if err := f.Close(); err != nil {
					return err
				}
				delete(w.files, strings.TrimSuffix(filepath.Base(path), ".jsonl"))
			}
			var err error
			if sum.Files[i], err = sink.Compress(path, j.req.Compress, w.fence(ctx)); err != nil {
				return err
			}
		}
	}
	if sum.Errors > 0 {
		var err error
		if sum.Failed, err = j.writeFailed(ctx); err != nil {
			return err
		}
	}
	sum.Seconds = w.now().Sub(time.UnixMilli(j.req.Began)).Seconds()
	if err := j.assess(ctx, sum); err != nil {
		return err
	}
	return j.writeReport(ctx, sum)
}

// writeFailed lists the pages that were not fetched, with the reasons, in a file
// that appears as a whole.
func (j *job) writeFailed(ctx context.Context) (path string, err error) {
	path = filepath.Join(j.writer.dir, "failed.jsonl")
	err = atomicfile.Write(path, 0o644, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for offset := 0; ; {
			ids, err := j.queue.Failed(ctx, offset, 500)
			if err != nil {
				return fmt.Errorf("list failed pages: %w", err)
			}
			if len(ids) == 0 {
				return j.writer.still(ctx)
			}
			offset += len(ids)
			infos, err := j.results(ctx, ids)
			if err != nil {
				return err
			}
			for _, id := range ids {
				info := infos[id]
				var v visit
				if json.Unmarshal(info.Payload, &v) != nil {
					continue
				}
				if err := enc.Encode(report.Failure{URL: v.URL, Class: yieldOf(info).Class, Attempts: info.Attempts, Error: info.Note}); err != nil {
					return err
				}
			}
		}
	})
	return path, err
}

// assess adds the health of the site to a summary, and the job to those that
// the next is compared with.
func (j *job) assess(ctx context.Context, sum *report.Summary) error {
	before, err := store.HealthOf(ctx, j.rdb, j.def.Site)
	if err != nil {
		return err
	}
	before = slices.DeleteFunc(before, func(h report.Health) bool { return h.JobID == j.run })
	sum.Health = report.Judge(j.def, sum, j.req.Limit > 0, time.Now(), before)
	if err := store.SaveHealth(ctx, j.rdb, sum.Health, before); err != nil {
		return err
	}
	if sum.Health.Status != report.Healthy {
		j.log.Warn("the site is not healthy", "health", sum.Health.Status, "alerts", sum.Health.Alerts)
	}
	if len(sum.Health.Notices) > 0 {
		j.log.Warn("records of the site lack something", "notices", sum.Health.Notices)
	}
	return nil
}

// reportFile is the file in a job's folder that has its Summary.
const reportFile = "report.json"

// writeReport writes the summary beside the records, for programs and for people.
func (j *job) writeReport(ctx context.Context, sum *report.Summary) error {
	data, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	for name, text := range map[string][]byte{reportFile: append(data, '\n'), "report.txt": []byte(sum.Text())} {
		err := atomicfile.Write(filepath.Join(j.writer.dir, name), 0o644, func(to io.Writer) error {
			if _, err := to.Write(text); err != nil {
				return err
			}
			return j.writer.still(ctx)
		})
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

// roll makes the records of the job those that the next is compared with.
func (j *job) roll(ctx context.Context, sum *report.Summary) error {
	w := j.writer
	for _, r := range j.def.Records {
		if f := w.files[r.Name]; f != nil {
			if err := f.Sync(); err != nil {
				return err
			}
		}
	}
	if err := w.closeBooks(); err != nil {
		return err
	}
	for _, r := range j.def.Records {
		var gone []sink.Record
		give := func() error {
			if len(gone) == 0 {
				return nil
			}
			for _, g := range gone {
				if err := w.note(ctx, g); err != nil {
					return err
				}
			}
			if err := w.changes.Sync(); err != nil {
				return err
			}
			err := w.put(ctx, gone)
			gone = gone[:0]
			return err
		}
		at := w.now()
		turn := ledger.Turn{Run: j.run, At: at, Records: w.path(r.Name), Watch: r.Watch, Complete: j.req.Limit == 0 && sum.HasEverything(), Fence: w.fence(ctx)}
		err := ledger.Roll(w.bookPath(r.Name), turn, func(e ledger.Entry) error {
			var h recordHead
			if err := json.Unmarshal(e.Record, &h); err != nil {
				return fmt.Errorf("read what was known of %s: %w", e.Key, err)
			}
			gone = append(gone, sink.Record{Site: w.site, Job: w.job, Type: r.Name, Key: e.Key, URL: h.URL, Data: e.Record, Change: string(ledger.Gone), At: at})
			if len(gone) == writeBatch {
				return give()
			}
			return nil
		})
		if err := errors.Join(err, give()); err != nil {
			return err
		}
	}
	return nil
}

// countChanges counts what changes.jsonl has.
func (j *job) countChanges(sum *report.Summary) error {
	sum.Changes = report.Changes{}
	f, err := os.Open(j.writer.changesPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("count changes: %w", err)
	}
	if err == nil {
		defer f.Close()
		sum.Changes.File = f.Name()
		r := bufio.NewReaderSize(f, 64<<10)
		for {
			line, err := r.ReadBytes('\n')
			if err == io.EOF {
				break
			}
			var c changeLine
			if err == nil {
				err = json.Unmarshal(line, &c)
			}
			if err != nil {
				return fmt.Errorf("count changes: %w", err)
			}
			switch c.Change {
			case ledger.New:
				sum.Changes.New++
			case ledger.Changed:
				sum.Changes.Changed++
			case ledger.Gone:
				sum.Changes.Gone++
			}
		}
	}
	sum.Changes.Unchanged = sum.Records - sum.Changes.New - sum.Changes.Changed
	return nil
}

// How often a writer looks for jobs: while there are some, and while not.
const (
	writeEvery = 250 * time.Millisecond
	lookEvery  = 2 * time.Second
)

// StartWriting writes the records of all jobs whose folder this process sees,
// until Close. A service that runs tasks of jobs does so by itself; one that
// only sends them must be told, or their workers must see the folder.
func (s *Service) StartWriting() {
	s.writing.Do(func() {
		s.writers.Go(func() {
			if _, err := homeOf(s.cfg.OutDir); err != nil { // senders look for its name
				s.cfg.Logger.Warn("scrapes are not left to this process to write", "error", err)
			}
			busy := map[string]chan struct{}{} // by job; closed when its writer rests
			defer func() {
				for _, done := range busy {
					<-done
				}
				s.retract(s.ctx)
			}()
			for {
				n := s.writeRound(busy)
				wait := lookEvery
				if n > 0 {
					wait = writeEvery
				}
				t := time.NewTimer(wait)
				select {
				case <-s.ctx.Done():
					t.Stop()
					return
				case <-s.kick:
					t.Stop()
				case <-t.C:
				}
			}
		})
	})
}

// writeRound starts the writers of open jobs that rest, and returns how many
// jobs are open.
func (s *Service) writeRound(busy map[string]chan struct{}) int {
	for id, done := range busy {
		select {
		case <-done:
			delete(busy, id)
		default:
		}
	}
	if err := s.announce(s.ctx); err != nil && s.ctx.Err() == nil {
		s.cfg.Logger.Warn("scrapes are not left to this process to write", "error", err)
	}
	known := s.known() // those that are not open below have been closed elsewhere
	open, err := s.cfg.Client.Redis().SMembers(s.ctx, store.OpenJobsKey).Result()
	if err != nil {
		if s.ctx.Err() == nil {
			s.cfg.Logger.Warn("cannot look for records to write", "error", err)
		}
		return 0
	}
	for _, j := range known {
		if busy[j.run] == nil && !slices.Contains(open, j.run) {
			s.forget(j)
		}
	}
	for _, id := range open {
		if busy[id] != nil {
			continue
		}
		done := make(chan struct{})
		busy[id] = done
		s.writers.Go(func() {
			defer close(done)
			s.writeJob(id)
		})
	}
	return len(open)
}

// writeJob writes what there is of a job, and closes it when it is time. After
// trouble with a sink it rests for longer.
func (s *Service) writeJob(id string) {
	err := func() error {
		j, err := s.job(s.ctx, id)
		if errors.Is(err, store.ErrNoJob) {
			return s.cfg.Client.Redis().SRem(s.ctx, store.OpenJobsKey, id).Err()
		}
		if err != nil {
			return err
		}
		if err := j.crawler.leases.giveBackOwed(s.ctx); err != nil || !j.writer.here() {
			return err
		}
		if _, err := j.writer.Drain(s.ctx); err != nil {
			return err
		}
		sum, ok, err := store.ReadJSON[report.Summary](s.ctx, j.rdb, store.CountedKey(id))
		if err != nil || !ok {
			return errors.Join(err, s.dropDead(j))
		}
		_, err = j.closeFiles(s.ctx, sum)
		return err
	}()
	if err != nil && !errors.Is(err, errNotWriter) && s.ctx.Err() == nil {
		if s.quiet.says(id, err) {
			s.cfg.Logger.Warn("records cannot be written now; they wait in Redis, and no more pages are begun", "job", id, "error", err)
		}
		_ = sleep(s.ctx, leastRest) // the service's end shows in the next round
	} else if err == nil && s.quiet.over(id) {
		s.cfg.Logger.Info("records are written again", "job", id)
	}
}

// dropDead closes a job that will have no more records: its workflow failed or
// was revoked.
func (s *Service) dropDead(j *job) error {
	if time.Since(j.looked) < 10*time.Second {
		return nil
	}
	j.looked = time.Now()
	dead, err := s.dead(s.ctx, j.run)
	if err != nil || !dead {
		return err
	}
	if err := s.cfg.Client.Redis().SRem(s.ctx, store.OpenJobsKey, j.run).Err(); err != nil {
		return fmt.Errorf("close job %s: %w", j.run, err)
	}
	s.forget(j)
	return nil
}
