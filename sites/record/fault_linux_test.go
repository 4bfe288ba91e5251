package record

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/internal/testutil/faultdisk"
	"muster/sites/internal/store"
	"muster/sites/report"
	"muster/tasks/redistest"
)

// everyCallEnv makes TestEachFailingDiskCall let each call fail; without it, some of them.
const everyCallEnv = "MUSTER_TEST_EVERY_CALL"

// Whichever call to the disk fails while records are written and the job is closed, the error names a file, and
// when the disk is well again, every record is there once, whether the same process continues or another.
func TestEachFailingDiskCall(t *testing.T) {
	t.Parallel()
	step := 19
	if os.Getenv(everyCallEnv) != "" {
		step = 1
	}
	for name, f := range map[string]faultdisk.Fault{
		"no space":          {N: 1, Err: syscall.ENOSPC},
		"space for a half":  {N: 3, Err: syscall.ENOSPC, Half: true},
		"no space any more": {N: 5, Err: syscall.ENOSPC, Stay: true},
		"input and output":  {N: 7, Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt, err := redis.ParseURL(redistest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			rdb := redis.NewClient(opt)
			defer rdb.Close()
			calls := 0
			for ; failDiskCall(t, rdb, f); f.N += step {
				calls++
			}
			if calls < 3 {
				t.Errorf("%d calls failed, want some more", calls)
			}
		})
	}
}

// failDiskCall writes the records of a job while a call fails, and again when none does. It reports whether there was such a call.
func failDiskCall(t *testing.T, rdb redis.UniversalClient, f faultdisk.Fault) bool {
	f.Dir = t.TempDir()
	file := filepath.Join(f.Dir, "records.db")
	sinks := []string{"sqlite:" + file}
	open := func() *Recorder {
		r, err := frozenRecorder(rdb, f.Dir, sinks)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	id := fmt.Sprint("frozen-job-", f.N)
	j := newFrozenJob(t, r, id, store.Request{OutDir: f.Dir, CSV: true, Sinks: sinks})
	sum := report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete}
	j.give(4, id)
	var err error
	d := faultdisk.Run(t, f, func() {
		if _, err = j.drain(t.Context()); err == nil {
			_, err = j.finish(t.Context(), sum)
		}
	})
	call, failed := d.Failed()
	if err != nil && !failed {
		t.Fatalf("got %v without a fault", err)
	}
	if err != nil && !strings.Contains(err.Error(), f.Dir) {
		t.Errorf("%s fails: got the error %q, want one that names a file", call, err)
	}
	if f.N%2 == 0 { // another process takes over
		if err := r.Close(); err != nil && !failed {
			t.Error(err)
		}
		r = open()
		if j.writer, err = r.writer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	j.rest = backOff{}
	if _, err := j.finish(t.Context(), sum); err != nil {
		t.Errorf("%s failed: got %v when the disk is well again", call, err)
	}
	j.isClosed()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var stored int
	if err := db.QueryRow("SELECT count(*) FROM muster_records").Scan(&stored); err != nil || stored != j.next {
		t.Errorf("the database has %d records, %v; want %d", stored, err, j.next)
	}
	if t.Failed() {
		t.Fatalf("call %d, %s, failed", f.N, call)
	}
	return failed
}
