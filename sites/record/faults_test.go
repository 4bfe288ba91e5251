package record

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/sites/internal/store"
	"muster/sites/report"
)

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
		r, err := testRecorder(f.Client(t, url), dir, nil)
		testutil.Ok(t, err)
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
	sum, err := json.Marshal(report.Summary{Site: j.def.Site, JobID: id, Status: report.StatusComplete})
	testutil.Ok(t, err)
	testutil.Ok(t, j.rdb.Set(t.Context(), store.CountedKey(id), sum, store.Keep).Err())
	testutil.Eventually(t, "the job is closed", func() bool {
		ended := try()
		n, err := j.rdb.Exists(t.Context(), store.SummaryKey(id)).Result()
		return ended && err == nil && n == 1
	})
	j.isClosed()
}
