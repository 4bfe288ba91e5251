package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// start starts a server on a directory, with a client. Both are closed at the end of the test.
func start(t testing.TB, dir string) (*Server, *redis.Client) {
	t.Helper()
	s := testutil.Must(Start(Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}))(t)
	opts := testutil.Must(redis.ParseURL(s.URL()))(t)
	rdb := redis.NewClient(opts)
	t.Cleanup(func() {
		_ = rdb.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, rdb
}

// image copies the files of a running server, as a crash leaves them, and cuts the data file to a size, if that is not negative.
func image(t testing.TB, from string, size int64) string {
	t.Helper()
	to := t.TempDir()
	testutil.Ok(t, os.CopyFS(to, os.DirFS(from)))
	testutil.Ok(t, os.Chmod(to, 0o700))
	if size >= 0 {
		testutil.Ok(t, os.Truncate(filepath.Join(to, dataFile), size))
	}
	return to
}

// content returns all keys of a server in text form, without the exact times to live.
func content(t testing.TB, s *Server) string {
	t.Helper()
	db := s.mini.DB(0)
	var all []record
	for _, key := range db.Keys() {
		all = append(all, newRecord(db, key))
	}
	return textOf(all)
}

func textOf(records []record) string {
	var b strings.Builder
	for _, r := range records {
		if r.Type == "hash" || r.Type == "set" {
			slices.Sort(r.Values)
		}
		fmt.Fprintln(&b, r.Key, r.Type, r.Expires > 0, r.Values)
	}
	return b.String()
}

// changes are commands that change keys in all ways, each with the keys that they leave.
var changes = [][]any{
	{"SET", "text", "a\x00\xff"}, {"SET", "short", "v", "PX", "3600000"}, {"HSET", "hash", "f", "1", "g", ""}, {"HDEL", "hash", "f"},
	{"RPUSH", "list", "a", "b", "c"}, {"LMOVE", "list", "moved", "LEFT", "RIGHT"}, {"SADD", "set", "x", "y"}, {"SMOVE", "set", "set2", "x"},
	{"ZADD", "zset", "1.5", "m", "1764421200123", "n", "-inf", "o"}, {"XADD", "stream", "5-1", "f", "v", "g", "w"}, {"XADD", "stream", "6-1", "f", "v"},
	{"MSET", "m1", "1", "m2", "2"}, {"DEL", "m1", "none"}, {"RENAME", "m2", "renamed"}, {"COPY", "renamed", "copy"}, {"INCRBY", "n", "7"},
	{"RPUSH", "gone", "a"}, {"LPOP", "gone"}, {"HSET", "typed", "f", "v"}, {"DEL", "typed"}, {"SADD", "typed", "now a set"},
	{"EVAL", "redis.call('SET', KEYS[1], 'by a script'); redis.call('SET', KEYS[1] .. '2', 1); return redis.call('EXPIRE', KEYS[1], 3600)", "1", "scripted"},
	{"EXPIRE", "copy", "3600"}, {"PERSIST", "short"},
}

// What the server has at its end, or at its last write, is there at the next start, after each kind of change.
func TestDataSurvives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, rdb := start(t, dir)
	for i, args := range changes {
		if err := rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		testutil.Ok(t, s.save(t.Context()))
		if i%4 != 0 {
			continue
		}
		crashed, _ := start(t, image(t, dir, -1))
		if got, want := content(t, crashed), content(t, s); got != want {
			t.Fatalf("after %v: got\n%s, want\n%s", args, got, want)
		}
	}
	waits := make(chan error, 1)
	go func() {
		waits <- rdb.BLMove(context.Background(), "ring", "taken", "LEFT", "RIGHT", 30*time.Second).Err()
	}()
	testutil.Eventually(t, "a client waits", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			if slices.Contains(c.keys, "taken") {
				return true
			}
		}
		return false
	})
	testutil.Ok(t, s.save(t.Context()))
	testutil.Ok(t, rdb.RPush(t.Context(), "ring", "e").Err())
	testutil.Ok(t, <-waits)
	want := content(t, s)
	testutil.Ok(t, s.Close())
	again, rdb := start(t, dir)
	if got := content(t, again); got != want || !strings.Contains(got, "taken list false [e]") {
		t.Errorf("after the end: got\n%s, want\n%s", got, want)
	}
	if id, err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "stream", Values: []string{"f", "v"}}).Result(); err != nil || len(id) < 10 {
		t.Errorf("the next entry of the stream: got %s, %v", id, err)
	}
	testutil.Ok(t, rdb.FlushAll(t.Context()).Err())
	testutil.Ok(t, again.save(t.Context()))
	if records, err := load(dir, again.log); err != nil || len(records) > 0 {
		t.Errorf("after FLUSHALL: got %v, %v", records, err)
	}
}

// A file that ends anywhere, or has a wrong byte anywhere, gives the data of an earlier moment, and is kept if it is damaged.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, rdb := start(t, dir)
	states, ends := []string{""}, []int64{s.file.size}
	for i := range 4 {
		testutil.Ok(t, rdb.MSet(t.Context(), "a", i, "b", i).Err())
		testutil.Ok(t, s.save(t.Context()))
		states, ends = append(states, content(t, s)), append(ends, s.file.size)
	}
	for size := range s.file.size + 1 {
		if size%7 != 0 && !slices.Contains(ends, size) && !slices.Contains(ends, size+1) {
			continue
		}
		torn := testutil.Must(load(image(t, dir, size), s.log))(t)
		at := 0
		for at+1 < len(ends) && ends[at+1] <= size {
			at++
		}
		if got := textOf(torn); got != states[at] {
			t.Fatalf("%d bytes: got %q, want %q", size, got, states[at])
		}
		if size == s.file.size {
			break
		}
		bad := image(t, dir, -1)
		path := filepath.Join(bad, dataFile)
		raw := testutil.Must(os.ReadFile(path))(t)
		raw[size] ^= 0x55
		testutil.Ok(t, os.WriteFile(path, raw, 0o600))
		damaged := testutil.Must(load(bad, s.log))(t)
		for at = 0; ends[at] <= size; {
			at++
		}
		kept, _ := filepath.Glob(filepath.Join(bad, "*damaged*"))
		if got := textOf(damaged); got != states[max(0, at-1)] || len(kept) == 0 && (at == 0 || size-ends[at-1] >= 8) { // a wrong length looks like a cut
			t.Fatalf("byte %d: got %q and kept %v, want %q", size, got, kept, states[max(0, at-1)])
		}
	}
}

// An unusable directory is refused with the reason.
func TestUnusableDirectories(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	start(t, used)
	newer := t.TempDir()
	testutil.Ok(t, os.WriteFile(filepath.Join(newer, dataFile), []byte("muster store 2\n???"), 0o600))
	open, writable := t.TempDir(), t.TempDir()
	testutil.Ok(t, os.Chmod(open, 0o777))
	testutil.Ok(t, os.WriteFile(filepath.Join(writable, dataFile), nil, 0o600))
	testutil.Ok(t, os.Chmod(filepath.Join(writable, dataFile), 0o666))
	wants := map[string]string{
		"": "Dir is empty", used: fmt.Sprintf("process %d", os.Getpid()), newer: "newer release", filepath.Join(newer, dataFile): "not a directory",
		open: "world-writable", writable: "world-writable",
	}
	if other := t.TempDir(); os.Geteuid() == 0 {
		testutil.GiveToNobody(t, other)
		wants[other] = "belongs to user"
	} else {
		testutil.Ok(t, os.Chmod(other, 0o500))
		wants[other] = "permission denied"
	}
	for dir, want := range wants {
		if _, err := Start(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
}

// A failed write is reported and repeated; the file stays whole, and nothing is lost.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, rdb := start(t, dir)
	testutil.Ok(t, rdb.Set(t.Context(), "a", 1, 0).Err())
	readOnly := testutil.Must(os.Open(filepath.Join(dir, dataFile)))(t)
	defer readOnly.Close()
	writable := s.file.File
	s.file.File = readOnly
	if err := s.save(t.Context()); err == nil {
		t.Fatal("got nil, want the error of the write")
	}
	s.file.File = writable
	fault := redistest.NewFault(redistest.ReplyLost, 1)
	s.rdb.AddHook(fault)
	fault.Arm()
	if err := s.save(t.Context()); !errors.Is(err, redistest.ErrFault) {
		t.Fatalf("got %v, want the error of the command", err)
	}
	testutil.Ok(t, s.save(t.Context()))
	again, _ := start(t, image(t, dir, -1))
	if got, want := content(t, again), content(t, s); got != want || want == "" {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A file that has grown is written anew, with the same keys.
func TestGrownFileIsWrittenAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, rdb := start(t, dir)
	large := strings.Repeat("x", 1<<20)
	for i := range 20 {
		testutil.Ok(t, rdb.Set(t.Context(), "large", fmt.Sprint(i, large), 0).Err())
		testutil.Ok(t, s.save(t.Context()))
	}
	if s.file.size > 8<<20 {
		t.Errorf("got a file of %d bytes for one key of 1 MiB", s.file.size)
	}
	crashed := image(t, dir, -1)
	testutil.Ok(t, os.Rename(filepath.Join(crashed, dataFile), filepath.Join(crashed, previousFile))) // between the two renames
	abandoned := filepath.Join(crashed, "."+dataFile+".next.1.tmp")
	testutil.Ok(t, os.WriteFile(abandoned, nil, 0o600)) // while it was written
	for _, dir := range []string{image(t, dir, -1), crashed} {
		if !Exists(dir) {
			t.Error("the data is not found")
		}
		again, _ := start(t, dir)
		if _, err := os.Stat(abandoned); dir == crashed && !os.IsNotExist(err) {
			t.Errorf("an incomplete file remains: %v", err)
		}
		if got := content(t, again); got != content(t, s) {
			t.Errorf("got %.40q", got)
		}
	}
}

// Copy moves everything to a Redis, and refuses one that is not empty.
func TestCopy(t *testing.T) {
	t.Parallel()
	to := redistest.New(t)
	dir := t.TempDir()
	if _, err := Copy(t.Context(), dir, to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory without data: got %v", err)
	}
	s, rdb := start(t, dir)
	for _, args := range changes {
		testutil.Ok(t, rdb.Do(t.Context(), args...).Err())
	}
	if _, err := Copy(t.Context(), dir, to); !errors.Is(err, ErrLocked) {
		t.Errorf("a directory in use: got %v", err)
	}
	want := content(t, s)
	testutil.Ok(t, s.Close())
	n, err := Copy(t.Context(), dir, to)
	if err != nil || n != strings.Count(want, "\n") {
		t.Fatalf("got %d keys, %v", n, err)
	}
	if got, err := to.ZScore(t.Context(), "zset", "n").Result(); err != nil || got != 1764421200123 {
		t.Errorf("got %v, %v", got, err)
	}
	if ttl := to.TTL(t.Context(), "copy").Val(); ttl < 50*time.Minute || ttl > time.Hour {
		t.Errorf("got a time to live of %v, want an hour", ttl)
	}
	if _, err := Copy(t.Context(), dir, to); err == nil || !strings.Contains(err.Error(), "empty database") {
		t.Errorf("a Redis with keys: got %v", err)
	}
}

var double = tasks.New[int, int]("embedded.double")

// Workflows wait in the directory until a later process runs them, and their results are kept.
func TestWorkflowsSurvive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, _ := start(t, dir)
	client := testutil.Must(tasks.Connect(t.Context(), s.URL()))(t)
	run := testutil.Must(tasks.Chain(double.S(4), double).Send(t.Context(), client))(t)
	testutil.Ok(t, client.Close())
	testutil.Ok(t, s.Close())

	s, _ = start(t, dir)
	client = testutil.Must(tasks.Connect(t.Context(), s.URL()))(t)
	mux := tasks.NewMux()
	tasks.Handle(mux, double, func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	worker := testutil.Must(tasks.StartWorker(t.Context(), client, mux, tasks.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}))(t)
	if got, err := tasks.Attach[int](client, run.ID()).Wait(t.Context()); err != nil || got != 16 {
		t.Errorf("got %v, %v, want 16", got, err)
	}
	testutil.Ok(t, worker.Stop())
	testutil.Ok(t, client.Close())
}

// BenchmarkSave writes the most changed keys that are written at once, of 100,000, and a list and a sorted set with 100,000 elements, as
// of waiting tasks. It reports for how long the server stands still at most.
func BenchmarkSave(b *testing.B) {
	s, rdb := start(b, b.TempDir())
	fill := func(n, round int) {
		for i := 0; i < n; i += 1000 {
			testutil.Must(rdb.Pipelined(b.Context(), func(p redis.Pipeliner) error {
				for k := i; k < i+1000; k++ {
					p.HSet(b.Context(), fmt.Sprint("key", k), "n", round, "input", strings.Repeat("x", 200))
				}
				return nil
			}))(b)
		}
	}
	fill(100_000, -1)
	for i := range 100 {
		var list, set []any
		for k := range 1000 {
			list, set = append(list, fmt.Sprint("element", 1000*i+k)), append(set, 1000*i+k, fmt.Sprint("element", 1000*i+k))
		}
		testutil.Ok(b, rdb.RPush(b.Context(), "list", list...).Err())
		testutil.Ok(b, rdb.Do(b.Context(), append([]any{"ZADD", "zset"}, set...)...).Err())
	}
	var worst time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		testutil.Ok(b, s.save(b.Context()))
		fill(mostChanged-1000, i)
		testutil.Ok(b, rdb.RPush(b.Context(), "list", "e").Err())
		testutil.Ok(b, rdb.ZAdd(b.Context(), "zset", redis.Z{Score: float64(i), Member: "e"}).Err())
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				rdb.Get(b.Context(), "none")
				worst = max(worst, time.Since(began))
			}
		}()
		b.StartTimer()
		testutil.Ok(b, s.save(b.Context()))
		b.StopTimer()
		close(stop)
		<-done
		b.StartTimer()
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "ms-stall")
}
