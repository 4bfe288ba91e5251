package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/report"
)

// damages are the ways to damage a file.
var damages = map[string]func(path string) error{
	"cut": func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	},
	"a bit flipped": func(path string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text[len(text)/2] ^= 0x80
		return os.WriteFile(path, text, 0o600)
	},
	"emptied":     func(path string) error { return os.Truncate(path, 0) },
	"text before": func(path string) error { return prepend(path, `{"version":99}`+"\n") },
	"a folder": func(path string) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(path, "x"), 0o700)
	},
}

func prepend(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(text), old...), 0o600)
}

// filesOfJobs are the files of two jobs of jobYAML, below the records directory.
var filesOfJobs = []string{
	".muster-home", "records.db", "shop.example/.lock",
	"shop.example/ledger/item.ledger", "shop.example/ledger/teaser.ledger",
	"shop.example/first/changes.jsonl", "shop.example/first/report.json", "shop.example/first/report.txt",
	"shop.example/first/item.jsonl", "shop.example/first/item.csv",
	"shop.example/first/teaser.jsonl", "shop.example/first/teaser.csv",
}

// If a file of a job is damaged, the job that resumes it and the next job write all their records, or fail with an error that
// names the file. Without the file they succeed.
func TestDamagedFilesOfJobs(t *testing.T) {
	t.Parallel()
	for what := range damages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			opt := testutil.Must(redis.ParseURL(redistest.URL(t)))(t)
			rdb := redis.NewClient(opt)
			defer rdb.Close()
			for _, file := range filesOfJobs {
				testutil.Ok(t, rdb.FlushDB(t.Context()).Err())
				damageFile(t, rdb, file, what)
			}
		})
	}
}

func damageFile(t *testing.T, rdb redis.UniversalClient, file, what string) {
	dir := t.TempDir()
	path, sinks := filepath.Join(dir, file), []string{"sqlite:" + filepath.Join(dir, "records.db")}
	// run runs a job with another page, like a new process.
	run := func(id string, req store.Request, give bool) error {
		r, err := testRecorder(rdb, dir, sinks)
		if err != nil {
			return err
		}
		req.OutDir, req.CSV, req.Sinks = dir, true, sinks
		if _, err := FolderName(dir); err != nil {
			return err
		}
		j := newTestJob(t, r, id, req)
		j.next = len(id) * 1000 // distinct records
		if give {
			j.give(4, id)
		}
		_, err = j.finish(t.Context(), report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete})
		return errors.Join(err, r.Close())
	}
	testutil.Ok(t, run("first", store.Request{}, true))
	err := filepath.WalkDir(dir, func(at string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, at)
		if err == nil && !e.IsDir() && !slices.Contains(filesOfJobs, name) && !strings.HasPrefix(name, "records.db-") { // of SQLite, which looks after them
			t.Errorf("got a file %s that this test does not know; add it to filesOfJobs", name)
		}
		return err
	})
	testutil.Ok(t, err)
	testutil.Ok(t, damages[what](path))
	noticed := false
	for id, req := range map[string]store.Request{"resume": {Resume: "first"}, "second": {}} {
		err := run(id, req, true)
		if err == nil {
			continue
		}
		noticed = true
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s is damaged: job %s ended with %q, want an error that names it", file, id, err)
		}
		testutil.Ok(t, os.RemoveAll(path))
		testutil.Ok(t, run(fmt.Sprint(id, "-again"), req, false))
	}
	if filepath.Ext(file) == ".ledger" && !noticed && what != "a bit flipped" { // one within a text is a text, too
		t.Errorf("%s: %s: jobs were compared with it, want an error", file, what)
	}
}

// Any call of the process that writes a job's records and closes its files may fail: each record, each change and each entry of
// the ledgers is stored once.
func TestWriterSurvivesAFaultAtAnyCall(t *testing.T) {
	t.Parallel()
	redistest.EachFault(t, map[redistest.Kind]int{
		redistest.Refused: 12, redistest.ReplyLost: 12, redistest.Repeated: 12, redistest.CrashAfter: 6,
	}, writeWithFault)
}

func writeWithFault(t *testing.T, f *redistest.Fault) {
	const id = "test-job"
	url, dir := redistest.URL(t), t.TempDir()
	recorder := func(f *redistest.Fault) *Recorder {
		r := testutil.Must(testRecorder(f.Client(t, url), dir, nil))(t)
		t.Cleanup(func() {
			if err := r.Close(); err != nil && !errors.Is(err, redistest.ErrFault) {
				t.Error(err)
			}
		})
		return r
	}
	good, r := recorder(redistest.NewFault(redistest.Refused, 0)), recorder(f)
	j := newTestJob(t, good, id, store.Request{OutDir: dir, CSV: true})
	try := func() bool {
		w, err := r.writer(t.Context(), id)
		if err == nil {
			w.lastCheck = time.Now() // its workflow is not over
			err = r.tryJob(t.Context(), id)
		}
		switch {
		case errors.Is(err, redistest.ErrFault) && f.Deadly():
			_ = r.Close() // the system unlocks the directory of a dead process
			r = good
		case err != nil && !errors.Is(err, redistest.ErrFault) && !errors.Is(err, ErrNotWriter):
			t.Fatal(err)
		}
		return err == nil
	}
	f.Arm()
	for range 3 {
		j.give(10, id)
		testutil.Eventually(t, "records are written", try)
	}
	sum := testutil.Must(json.Marshal(report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete}))(t)
	testutil.Ok(t, j.rdb.Set(t.Context(), store.CountedKey(id), sum, store.Keep).Err())
	testutil.Eventually(t, "the job is closed", func() bool {
		ended := try()
		n, err := j.rdb.Exists(t.Context(), store.SummaryKey(id)).Result()
		return ended && err == nil && n == 1
	})
	j.isClosed()
}
