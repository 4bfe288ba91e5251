package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/lib/pq"
	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/outbox"
	"muster/tasks/tasktype"
)

var double = tasks.New[int, int]("outbox.double")

// relayOf is the environment variable with the dialect, the DSN and the Redis of a relay that a test kills.
const relayOf = "MUSTER_TEST_OUTBOX_RELAY"

func TestMain(m *testing.M) {
	var dialect, dsn, url string
	if n, _ := fmt.Sscan(os.Getenv(relayOf), &dialect, &dsn, &url); n == 3 {
		go func() { // it ends with the test
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		client, err := tasks.Connect(context.Background(), url)
		must(err)
		relay, err := outbox.NewRelay(outbox.Config{DB: open(dialect, dsn), Dialect: outbox.Dialect(dialect), Client: client, Batch: 20, Poll: 5 * time.Millisecond, Claim: time.Second})
		must(err)
		must(relay.Run(context.Background()))
	}
	redistest.Main(m)
}

func open(dialect, dsn string) *sql.DB {
	name := "sqlite"
	if dialect == string(outbox.PostgreSQL) {
		name = "postgres"
	}
	db, err := sql.Open(name, dsn)
	must(err)
	return db
}

func sqliteDSN(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
}

func TestDatabases(t *testing.T) {
	t.Parallel()
	for dialect, dsn := range map[outbox.Dialect]func(*testing.T) string{outbox.SQLite: sqliteDSN, outbox.PostgreSQL: func(t *testing.T) string { return testutil.Postgres(t) }} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			d := &database{dialect: dialect, dsn: dsn(t)}
			d.DB = open(string(dialect), d.dsn)
			t.Cleanup(func() { _ = d.Close() })
			testutil.Eventually(t, "the database responds", func() bool { return d.PingContext(t.Context()) == nil })
			for name, test := range map[string]func(*testing.T, *database){
				"killed relays": testKilledRelays, "options and duplicates": testOptionsAndDuplicates, "refused rows": testRefusedRows,
			} {
				t.Run(name, func(t *testing.T) {
					for _, statement := range []string{"DROP TABLE IF EXISTS muster_outbox", outbox.Schema(dialect), outbox.Schema(dialect)} {
						d.exec(t, statement)
					}
					test(t, d)
				})
			}
		})
	}
}

// database is a database under test.
type database struct {
	*sql.DB
	dialect outbox.Dialect
	dsn     string
}

func (d *database) exec(t *testing.T, statement string) {
	t.Helper()
	testutil.Must(d.ExecContext(t.Context(), statement))(t)
}

// add adds sends in a transaction.
func (d *database) add(t *testing.T, commit bool, sends ...tasks.Sending) []string {
	t.Helper()
	tx := testutil.Must(d.BeginTx(t.Context(), nil))(t)
	ids := testutil.Must(outbox.Add(t.Context(), tx, sends...))(t)
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	testutil.Ok(t, end())
	return ids
}

func (d *database) status(t *testing.T) *outbox.Status {
	t.Helper()
	s := testutil.Must(outbox.Inspect(t.Context(), d.DB))(t)
	return s
}

func (d *database) sent(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, "no row waits", func() bool { return d.status(t).Waiting == 0 })
}

// relay starts a relay that looks for rows only at the start and when it is woken.
func (d *database) relay(t *testing.T, client *tasks.Client) *outbox.Relay {
	t.Helper()
	relay := testutil.Must(outbox.NewRelay(outbox.Config{DB: d.DB, Dialect: d.dialect, Client: client, Batch: 1, Poll: time.Hour}))(t)
	testutil.Background(t, relay.Run)
	return relay
}

// counter is a worker that counts the calls of its handler by input.
type counter struct {
	client *tasks.Client
	mu     sync.Mutex // guards calls
	calls  map[int]int
}

func newCounter(t *testing.T, rdb redis.UniversalClient) *counter {
	c := &counter{client: tasks.NewClient(rdb), calls: map[int]int{}}
	mux := tasks.NewMux()
	tasks.Handle(mux, double, func(_ context.Context, n int) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[n]++
		return 2 * n, nil
	})
	worker := testutil.Must(tasks.StartWorker(t.Context(), c.client, mux, tasks.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { testutil.Ok(t, errors.Join(worker.Stop(), c.client.Close())) })
	return c
}

func (c *counter) seen(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[n]
}

// Committed rows are sent, each once, and no row of a transaction that was rolled back, while relays are killed. The variable has other numbers
// of transactions and kills.
func testKilledRelays(t *testing.T, d *database) {
	rows, kills := 300, 4
	_, _ = fmt.Sscan(os.Getenv("MUSTER_TEST_OUTBOX"), &rows, &kills)
	url := redistest.URL(t)
	options := testutil.Must(tasks.ParseURL(url))(t)
	c := newCounter(t, redis.NewUniversalClient(options))
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), relayOf+"="+strings.Join([]string{string(d.dialect), d.dsn, url}, " ")), os.Stderr
		_, err := cmd.StdinPipe()
		testutil.Ok(t, errors.Join(err, cmd.Start()))
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	ids, amid := make([]string, rows), 0
	relays, share := []*exec.Cmd{start(), start()}, rows/kills
	victim := 0
	for i := range rows {
		ids[i] = d.add(t, i%3 != 0, tasks.Sending{Work: double.S(i)})[0]
		if i%share == 2 {
			testutil.Eventually(t, "the relays send", func() bool { return c.seen(i)+c.seen(i-1) > 0 })
			victim = i + 1 + rand.N(share-3)
		}
		if k := i / share; i == victim {
			kill(relays[k%2])
			amid += min(1, d.status(t).Waiting)
			relays[k%2] = start()
		}
	}
	d.sent(t)
	testutil.Eventually(t, "all workflows have ended", func() bool {
		counts := testutil.Must(c.client.Inspect().CountWorkflows(t.Context()))(t)
		return counts[tasktype.WorkflowSucceeded] >= int64(rows-(rows+2)/3)
	})
	t.Logf("%d of %d kills were amid rows", amid, kills)
	for i, id := range ids {
		p, err := c.client.Workflow(id).Progress(t.Context())
		switch n := c.seen(i); {
		case i%3 == 0 && (n != 0 || !errors.Is(err, tasks.ErrNotFound)):
			t.Errorf("row %d was rolled back: ran %d times, %+v, %v", i, n, p, err)
		case i%3 != 0 && (n != 1 || err != nil):
			t.Errorf("row %d was committed: ran %d times, %v", i, n, err)
		}
	}
	for _, cmd := range relays {
		kill(cmd)
	}
}

func testOptionsAndDuplicates(t *testing.T, d *database) {
	c := newCounter(t, redistest.New(t))
	one := []tasks.SendOption{tasks.ID("one"), tasks.Name("it's \"me\"\\"), tasks.Labels(map[string]string{"shop": "é"})}
	parked := []tasks.SendOption{tasks.Unique("key", time.Hour), tasks.Queue("nobody's")}
	large := tasks.Each(slices.Repeat([]string{strings.Repeat("long", 1<<16)}, 3), tasks.New[string, string]("outbox.none")) // a statement each
	ids := d.add(t, true, tasks.Sending{Work: double.S(1), Options: one}, tasks.Sending{Work: double.S(2), Options: one},
		tasks.Sending{Work: double.S(3), Options: parked}, tasks.Sending{Work: double.S(4), Options: parked}, tasks.Sending{Work: large}, tasks.Sending{Work: large})
	d.relay(t, c.client)
	d.sent(t)
	if v, err := tasks.Attach[int](c.client, "one").Wait(t.Context()); v != 2 || err != nil || ids[0] != "one" || ids[1] != "one" {
		t.Errorf("got %d, %v, of %v; want 2 from the first row with the ID", v, err, ids)
	}
	list, _, err := c.client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{Labels: map[string]string{"shop": "é"}})
	if err != nil || len(list) != 1 || list[0].Name != "it's \"me\"\\" {
		t.Errorf("got %+v, %v; want the workflow with the label", list, err)
	}
	for i, want := range []error{2: nil, 3: tasks.ErrNotFound, 4: nil, 5: nil} {
		if _, err := c.client.Workflow(ids[i]).Progress(t.Context()); !errors.Is(err, want) {
			t.Errorf("workflow %d: got %v, want %v", i, err, want)
		}
	}
}

func testRefusedRows(t *testing.T, d *database) {
	c := newCounter(t, redistest.New(t))
	tx := testutil.Must(d.BeginTx(t.Context(), nil))(t)
	for name, s := range map[string]tasks.Sending{
		"no work":     {},
		"bad option":  {Work: double.S(1), Options: []tasks.SendOption{tasks.Queue("{}")}},
		"bad task":    {Work: tasks.New[int, int]("").S(1)},
		"over 1 MiB":  {Work: tasks.New[string, int]("outbox.text").S(strings.Repeat("x", 1<<20))},
		"bad overlap": {Work: double.S(1), Options: []tasks.SendOption{tasks.Overlap(tasks.OverlapQueue)}},
	} {
		if ids, err := outbox.Add(t.Context(), tx, tasks.Sending{Work: double.S(1)}, s); ids != nil || !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("%s: got %v, %v; want ErrInvalid", name, ids, err)
		}
	}
	testutil.Ok(t, tx.Commit())
	raw, err := tasks.Sending{Work: double.S(1), Options: []tasks.SendOption{tasks.ID("quote")}}.MarshalJSON()
	if err := errors.Join(err, new(tasks.Sending).UnmarshalJSON(bytes.Replace(raw, []byte("quote"), []byte("qu'te"), 1))); !errors.Is(err, tasks.ErrInvalid) {
		t.Errorf("a quote in an ID: got %v, want ErrInvalid", err)
	}
	if s := d.status(t); s.Waiting+s.Refused != 0 || !s.Oldest.IsZero() {
		t.Fatalf("got %+v, want no rows", s)
	}
	late := tasks.Sending{Work: double.S(2), Options: []tasks.SendOption{tasks.Deadline(time.Now().Add(-time.Minute))}}
	id := d.add(t, true, tasks.Sending{Work: double.S(1)}, tasks.Sending{Work: double.S(1)}, tasks.Sending{Work: double.S(1)}, late, tasks.Sending{Work: double.S(3)})[3]
	for seq, work := range map[int]string{1: "%", 2: "e30=", 3: "eyJpZCI6IngiLCJnIjp7InYiOjk5OX19"} { // no base64, {}, version 999
		d.exec(t, fmt.Sprintf("UPDATE muster_outbox SET work = '%s' WHERE seq = (SELECT MIN(seq) + %d FROM muster_outbox)", work, seq-1))
	}
	if s := d.status(t); s.Waiting != 5 || time.Since(s.Oldest).Abs() > time.Hour {
		t.Errorf("got %+v, want 5 rows of now", s)
	}
	relay := d.relay(t, c.client)
	d.sent(t)
	s := d.status(t)
	for i, want := range []string{"base64", "decode graph", "version 999", "deadline"} {
		if s.Refused != 4 || !strings.Contains(s.Rows[i].Error, want) || s.Rows[i].Refused.Before(s.Rows[i].Added) {
			t.Fatalf("got %+v, want 4 rows, the error of row %d with %q", s, i, want)
		}
	}
	if s.Rows[3].Workflow != id {
		t.Errorf("got workflow %s, want %s", s.Rows[3].Workflow, id)
	}
	testutil.Eventually(t, "the other row is sent", func() bool { return c.seen(3) == 1 })
	d.exec(t, fmt.Sprintf("DELETE FROM muster_outbox WHERE seq <> %d", s.Rows[3].Seq))
	d.exec(t, "UPDATE muster_outbox SET refused_at = 0 WHERE refused_at > 0")
	relay.Wake()
	testutil.Eventually(t, "it is refused again", func() bool { s := d.status(t); return s.Refused == 1 && s.Waiting == 0 })
}

// outage is a database and a Redis that can be away.
type outage struct {
	dsn                          string
	noDB, noRedis, noDBAfterSend atomic.Bool
	attempts                     atomic.Int32
}

var errAway = errors.New("away")

func (o *outage) Driver() driver.Driver { return &sqlite.Driver{} }

func (o *outage) Connect(context.Context) (driver.Conn, error) {
	if o.noDB.Load() {
		o.attempts.Add(1)
		return nil, errAway
	}
	return o.Driver().Open(o.dsn)
}

func (o *outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o.noRedis.Load() {
			o.attempts.Add(1)
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if o.noDBAfterSend.Load() {
			o.noDB.Store(true)
		}
		return err
	}
}

// The relay survives an outage, logs it once, and forgets no result: rows whose workflows expired before they could be deleted are not sent again.
func TestOutages(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*outage){
		"of the database":              func(o *outage) { o.noDB.Store(true) },
		"of Redis":                     func(o *outage) { o.noRedis.Store(true) },
		"of the database after a send": func(o *outage) { o.noDBAfterSend.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := testutil.Must(tasks.ParseURL(redistest.URL(t)))(t)
			c, rdb := newCounter(t, redis.NewUniversalClient(options)), redis.NewUniversalClient(options)
			o := &outage{dsn: sqliteDSN(t)}
			rdb.AddHook(o)
			d, away := &database{open("sqlite", o.dsn), outbox.SQLite, o.dsn}, sql.OpenDB(o)
			t.Cleanup(func() { testutil.Ok(t, errors.Join(away.Close(), d.Close(), rdb.Close())) })
			away.SetMaxIdleConns(-1)
			d.exec(t, outbox.Schema(outbox.SQLite))
			var log testutil.Output
			relay, err := outbox.NewRelay(outbox.Config{DB: away, Dialect: outbox.SQLite, Client: tasks.NewClient(rdb), Poll: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			testutil.Ok(t, err)
			testutil.Background(t, relay.Run)
			begin(o)
			d.add(t, true, tasks.Sending{Work: double.S(7), Options: []tasks.SendOption{tasks.Retention(0)}})
			testutil.Eventually(t, "the relay has tried three times", func() bool { return o.attempts.Load() >= 5 }) // a send can ask Redis three times
			if strings.Count(log.String(), "level=WARN") != 1 {
				t.Errorf("got %s, want one warning", &log)
			}
			if d.status(t).Waiting != 1 {
				t.Error("the row is missing during the outage")
			}
			if o.noDBAfterSend.Load() {
				testutil.Eventually(t, "the workflow has expired", func() bool {
					keys, err := rdb.Keys(t.Context(), "*:w:*").Result()
					return err == nil && len(keys) == 0 && c.seen(7) == 1
				})
			}
			o.noDBAfterSend.Store(false)
			o.noDB.Store(false)
			o.noRedis.Store(false)
			d.sent(t)
			testutil.Eventually(t, "the workflow has run", func() bool { return c.seen(7) > 0 && strings.Contains(log.String(), "works again") })
			if n := c.seen(7); n != 1 || strings.Count(log.String(), "\n") != 2 {
				t.Errorf("ran %d times, want once; log: %s", n, &log)
			}
		})
	}
}
