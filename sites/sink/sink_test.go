package sink

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/addressfilter"
	"muster/internal/testutil"
	"muster/internal/webhook"
)

func TestCheckFindsInvalidAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"sqlite:records.db":               "",
		"sqlite:/x/records.db":            "",
		"postgres://me@db.example/app":    "",
		"postgresql:///app":               "",
		"https://hook.example/in?t=1":     "",
		"sqlite:":                         "name a file",
		"sqlite:x?mode=memory":            "name a file",
		"records.db":                      "no scheme",
		"mysql://x":                       "unknown kind",
		"http:///x":                       "no host",
		"postgres://me:hush@db/app":       "must not contain a password",
		"postgres://db/app?password=hush": "must not contain a password",
		"https://me:hush@hook.example/":   "must not contain a password",
		"s3://data/a/b":                   "",
		"s3:///a":                         "want s3://BUCKET/PREFIX",
		"s3://id:hush@data/a":             "want s3://BUCKET/PREFIX",
		"s3://data?secret=hush":           "want s3://BUCKET/PREFIX",
		"postgres://%zz":                  "not a URL",
	} {
		err := Check(address)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: got %v", address, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", address, err, want)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: the error repeats the password: %v", address, err)
		}
	}
}

func record(key, data, change, diff string) Record {
	r := Record{Site: "shop.example", Job: "j1", Type: "item", Key: key, URL: "http://shop.example/" + key, Data: json.RawMessage(data), Change: change, At: time.Unix(1_700_000_000, 0)}
	if diff != "" {
		r.Diff = json.RawMessage(diff)
	}
	return r
}

// holds checks the requirements of every database.
func holds(t *testing.T, open func() (Sink, error), db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	one := func(query string) string {
		t.Helper()
		var got sql.NullString
		if err := db.QueryRowContext(ctx, query).Scan(&got); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return got.String
	}
	s := testutil.Must(open())(t)
	var many []Record
	for i := range 250 {
		many = append(many, record(fmt.Sprint("k", i), fmt.Sprintf(`{"n":%d}`, i), "new", ""))
	}
	many = append(many, record("k0", `{"n":0,"again":true}`, "new", ""), record("odd", `{"text":"a\u0000b \\u0000 'é'"}`, "new", ""), record(strings.Repeat("é", 2000), `{}`, "new", ""))
	for range 2 { // a crash made them be given twice
		if n, err := s.Put(ctx, many); err != nil || n != len(many) {
			t.Fatal(err)
		}
	}
	if got := one(`SELECT COUNT(*) FROM muster_records`); got != "252" {
		t.Errorf("got %s records, want 252", got)
	}
	testutil.Ok(t, s.Close())
	s = testutil.Must(open())(t) // the tables are there
	defer s.Close()
	later := record("k1", `{"n":7}`, "changed", `{"n":[1,7]}`)
	later.Job, later.At = "j2", later.At.Add(time.Hour)
	same := record("k2", `{"n":2}`, "unchanged", "")
	same.Job, same.At = "j2", later.At
	gone := record("k3", `{"n":3}`, "gone", "")
	gone.Job, gone.At = "j2", later.At
	testutil.Must(s.Put(ctx, []Record{later, same, gone}))(t)
	for query, want := range map[string]string{
		`SELECT diff FROM muster_changes WHERE record_key = 'k1' AND job = 'j2'`:                                        `[1,7]`,
		`SELECT COUNT(*) FROM muster_changes WHERE record_key = 'k2'`:                                                   "1",
		`SELECT COUNT(*) FROM muster_records WHERE gone_at IS NOT NULL`:                                                 "1",
		`SELECT COUNT(*) FROM muster_records WHERE record_key IN ('k1','k2') AND last_seen > first_seen AND job = 'j2'`: "2",
		`SELECT COUNT(*) FROM muster_records WHERE record_key = 'k2' AND changed_at = first_seen`:                       "1",
		`SELECT data FROM muster_records WHERE record_key = 'k0'`:                                                       `"again"`,
	} {
		if got := strings.ReplaceAll(one(query), " ", ""); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
}

func openFile(t *testing.T, path string) (Sink, error) {
	t.Helper()
	db, err := openSQLite(t.Context(), path, sqliteTables)
	if err != nil {
		return nil, err
	}
	return &database{db}, nil
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a ?b", "records.db")
	open := func() (Sink, error) { return openFile(t, path) }
	testutil.Ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
	s, err := open()
	testutil.Ok(t, err)
	testutil.Ok(t, s.Close())
	holds(t, open, mustOpen(t, path))

	// A locked database fails, and accepts the records after it is unlocked.
	db := mustOpen(t, path)
	_, err = db.Exec("BEGIN EXCLUSIVE")
	testutil.Ok(t, err)
	if s, err = openFile(t, path); err == nil {
		_, err = s.Put(t.Context(), []Record{record("locked", "{}", "new", "")})
	}
	if err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("got %v, want that it is locked", err)
	}
	testutil.Must(db.Exec("ROLLBACK"))(t)
	if s != nil {
		if _, err := s.Put(t.Context(), []Record{record("locked", "{}", "new", "")}); err != nil {
			t.Error(err)
		}
		_ = s.Close()
	}
}

func mustOpen(t *testing.T, path string) *sql.DB {
	t.Helper()
	db := testutil.Must(sql.Open("sqlite", "file:"+strings.ReplaceAll(strings.ReplaceAll(path, " ", "%20"), "?", "%3f")))(t)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	address := testutil.Postgres(t)
	db := testutil.Must(sql.Open("postgres", address))(t)
	t.Cleanup(func() { _ = db.Close() })
	testutil.Eventually(t, "PostgreSQL answers", func() bool { return db.Ping() == nil })

	// Concurrent first users create the tables once.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := Open(t.Context(), address, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	holds(t, func() (Sink, error) { return Open(t.Context(), address, Options{}) }, db)
}

// A process that is stopped inside a transaction does not block another writer of the same records.
func TestStoppedTransactionEnds(t *testing.T) {
	t.Parallel()
	address := testutil.Postgres(t)
	sinks := [2]Sink{}
	for i := range sinks {
		testutil.Eventually(t, "PostgreSQL answers", func() bool {
			s, err := Open(t.Context(), address, Options{})
			sinks[i] = s
			return err == nil
		})
		defer sinks[i].Close()
	}
	r := record("a", `{"v":1}`, "new", "")
	testutil.Must(sinks[0].Put(t.Context(), []Record{r}))(t)
	frozen, ok := sinks[0].(*database)
	if !ok || frozen.each != idleStatement(idleLimit) {
		t.Fatalf("transactions begin with %q, want %q", frozen.each, idleStatement(idleLimit))
	}
	frozen.each = idleStatement(100 * time.Millisecond) // not to wait for long
	tx := testutil.Must(frozen.Begin(t.Context()))(t)
	defer tx.Rollback() //nolint:errcheck // it was ended by the server
	testutil.Must(tx.ExecContext(t.Context(), `UPDATE muster_records SET data = '{"v":0}'`))(t)
	r.Data = json.RawMessage(`{"v":2}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := sinks[1].Put(ctx, []Record{r}); n != 1 || err != nil {
		t.Errorf("next to a stopped transaction: got %d, %v; want 1 record taken", n, err)
	}
	if err := tx.Commit(); err == nil {
		t.Error("got a late commit of the stopped transaction, want none")
	}
}

func TestMissingPostgresIsAnError(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "postgres://me@127.0.0.1:1/app?sslmode=disable", Options{})
	if err == nil || !strings.Contains(err.Error(), "postgres://127.0.0.1:1/app") {
		t.Errorf("got %v, want which could not be reached", err)
	}
	l := testutil.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 8))
			_, _ = c.Write([]byte("N")) // no TLS
			_ = c.Close()
		}
	}()
	if _, err := Open(t.Context(), "postgres://me@"+l.Addr().String()+"/app", Options{}); err == nil || !strings.Contains(err.Error(), "append ?sslmode=disable") {
		t.Errorf("server without TLS: got %v, want the remedy", err)
	}
}

// hook is the receiver of a webhook.
type hook struct {
	*httptest.Server
	mu      sync.Mutex // guards the fields below
	answers []int      // to the first requests
	ids     []string
	got     []hookBody
	bad     []string
}

func newHook(t *testing.T, secret string, answers ...int) *hook {
	t.Helper()
	h := &hook{answers: answers}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ids = append(h.ids, r.Header.Get("webhook-id"))
		if secret != "" {
			if err := webhook.Verify(r.Header, body, time.Now(), secret); err != nil {
				h.bad = append(h.bad, err.Error())
			}
		} else if sig := r.Header.Get("webhook-signature"); sig != "" {
			h.bad = append(h.bad, sig)
		}
		if len(h.answers) > 0 {
			code := h.answers[0]
			h.answers = h.answers[1:]
			if code/100 != 2 {
				http.Redirect(w, r, "/elsewhere", code)
				return
			}
		}
		var b hookBody
		if err := json.Unmarshal(body, &b); err != nil {
			h.bad = append(h.bad, err.Error())
		}
		h.got = append(h.got, b)
	}))
	t.Cleanup(h.Close)
	return h
}

// posterTo returns a sink with minimal delays between attempts.
func posterTo(t *testing.T, address string, o Options) *poster {
	t.Helper()
	p := testutil.Must(newPoster(address, o))(t)
	t.Cleanup(func() { _ = p.Close() })
	p.base = time.Millisecond
	return p
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	h := newHook(t, secret, 503, 429)
	s := posterTo(t, h.URL+"/in?token=hush", Options{Secret: secret})
	var many []Record
	for i := range 150 {
		many = append(many, record(fmt.Sprint("k", i), `{"a":"<b>"}`, "new", ""))
	}
	many[3].Change, many[3].Diff = "changed", json.RawMessage(`{"a":[1,2]}`)
	if n, err := s.Put(t.Context(), many); err != nil || n != len(many) {
		t.Fatal(err)
	}
	if len(h.bad) > 0 || len(h.got) != 2 || len(h.got[0].Records) != 100 || len(h.got[1].Records) != 50 {
		t.Fatalf("got %d batches, wrong %v", len(h.got), h.bad)
	}
	if r := h.got[0].Records[3]; h.got[0].Site != "shop.example" || r.Key != "k3" || r.Change != "changed" || string(r.Diff) != `{"a":[1,2]}` || string(r.Data) != `{"a":"<b>"}` {
		t.Errorf("got %+v", r)
	}
	if len(h.ids) != 4 || h.ids[0] == "" || h.ids[0] != h.ids[1] || h.ids[1] != h.ids[2] || h.ids[3] == h.ids[0] {
		t.Errorf("got ids %v, want one for a batch however often it is posted", h.ids)
	}
	if strings.Contains(s.name, "hush") {
		t.Error("got a name with the token, want it without")
	}
}

func TestWebhookFailsAfterItsTries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []int
		tries   int
	}{
		"away":     {[]int{500, 502, 503, 504, 500}, hookTries},
		"refused":  {[]int{410}, 1},
		"redirect": {[]int{302}, 1},
	} {
		h := newHook(t, "", c.answers...)
		s := posterTo(t, h.URL+"/in?token=hush", Options{})
		_, err := s.Put(context.Background(), []Record{record("k", `{}`, "new", "")})
		if err == nil || strings.Contains(err.Error(), "hush") || len(h.ids) != c.tries || len(h.bad) > 0 {
			t.Errorf("%s: got %v after %d tries, want an error after %d", name, err, len(h.ids), c.tries)
		}
		h.Close()
		if _, err := s.Put(context.Background(), []Record{record("k", `{}`, "new", "")}); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v from one that is gone", name, err)
		}
	}
}

// A webhook in a private network receives records only if it is allowed. Otherwise it fails without retries.
func TestWebhookConnectsOnlyToAllowedAddresses(t *testing.T) {
	t.Parallel()
	h := newHook(t, "")
	address := strings.Replace(h.URL, "127.0.0.1", "hook.test", 1) + "/in"
	allowed, err := addressfilter.New("hook.test")
	testutil.Ok(t, err)
	one := []Record{record("k", `{}`, "new", "")}
	s := posterTo(t, address, Options{})
	s.base = time.Hour // a second try would hang
	if _, err = s.Put(t.Context(), one); !addressfilter.Is(err) || len(h.ids) != 0 {
		t.Errorf("got %v and %d requests, want a refusal and none", err, len(h.ids))
	}
	testutil.Must(posterTo(t, address, Options{Filter: allowed}).Put(t.Context(), one))(t)
}

func TestWebhookSecretMustBeOne(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "https://hook.example/in", Options{Secret: "a passphrase"})
	if err == nil || !strings.Contains(err.Error(), "base64") || strings.Contains(err.Error(), "passphrase") {
		t.Errorf("got %v, want a description of secrets, without this secret", err)
	}
}

// FuzzAddress checks that the address of a sink with a password is rejected with an error that does not repeat it.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"postgres://u:", "postgres://h/db?password=", "https://u:", "ftp://u:", "postgresql://[u:", "https://h/%zz", "http:://:", "postgres:/://:"} {
		f.Add(s, "@h/db")
	}
	f.Add("sqlite:", ".db")
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		if scheme, rest, ok := strings.Cut(before, "://"); !ok || scheme == "" || !strings.HasSuffix(rest, ":") || strings.ContainsAny(rest, "/?#@") || !strings.HasPrefix(after, "@") {
			return // only the userinfo contains a password
		}
		_, _, err := parse(before + password + after)
		if err == nil {
			t.Errorf("%q is let through", before+password+after)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%q: the error is %v", before+password+after, err)
		}
	})
}
