package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
	"muster/tasks/internal/store"
	"muster/tasks/tasktype"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, addrs, user, password, master, sentinel string
		db                                           int
		tls, cluster                                 bool
	}{
		{url: "redis://h", addrs: "h:6379"},
		{url: "redis://u:p%40w@h:1/3", addrs: "h:1", user: "u", password: "p@w", db: 3},
		{url: "rediss://:p@h:1", addrs: "h:1", password: "p", tls: true},
		{url: "unix:///run/redis.sock?db=2", addrs: "/run/redis.sock", db: 2},
		{url: "redis-cluster://h1", addrs: "h1:6379", cluster: true},
		{url: "redis-cluster://u:p@h1:1,h2:2,[::1]:3,::2/", addrs: "h1:1 h2:2 [::1]:3 [::2]:6379", user: "u", password: "p", cluster: true},
		{url: "rediss-cluster://h1,h2?pool_size=7", addrs: "h1:6379 h2:6379", cluster: true, tls: true},
		{url: "redis-sentinel://h1,h2:5/mymaster", addrs: "h1:26379 h2:5", master: "mymaster"},
		{url: "redis-sentinel://u:p@h1/mymaster?db=4&sentinel_password=s", addrs: "h1:26379", user: "u", password: "p", master: "mymaster", sentinel: "s", db: 4},
		{url: "redis-sentinel://h1,h2?master=mymaster", addrs: "h1:26379 h2:26379", master: "mymaster"},
		{url: "rediss-sentinel://h1/m", addrs: "h1:26379", master: "m", tls: true},
	} {
		o, err := tasks.ParseURL(c.url)
		if err != nil {
			t.Errorf("%s: got %v, want no error", c.url, err)
			continue
		}
		if got := strings.Join(o.Addrs, " "); got != c.addrs || o.Username != c.user || o.Password != c.password ||
			o.MasterName != c.master || o.SentinelPassword != c.sentinel || o.DB != c.db ||
			(o.TLSConfig != nil) != c.tls || o.IsClusterMode != c.cluster {
			t.Errorf("%s: got %s %+v, want %+v", c.url, got, o, c)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "h:6379", "http://h", "redis-star://h", "redis-cluster://", "redis-cluster://h:0", "redis-cluster://h/2",
		"redis-sentinel://h1,h2", "redis-cluster://" + strings.Repeat("h,", 101),
		"redis://u:s%secret@h", "redis://u:secret@h:port", "redis-cluster://u:secret@h:port", "redis://u:12/secret@h",
		"redis-sentinel://u:s%secret@h/m", "redis://h/0?secretly=1",
	} {
		_, err := tasks.ParseURL(url)
		if err == nil {
			t.Errorf("%s: got no error, want one", url)
		} else if strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: got %v, want an error without the password", url, err)
		}
	}
}

// The error about an untrusted certificate names the remedy.
func TestConnectErrorNamesRemedyForUntrustedCertificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	_, err := tasks.Connect(t.Context(), "rediss://"+server.Listener.Addr().String()+"/0?max_retries=-1")
	if err == nil || !strings.Contains(err.Error(), "SSL_CERT_FILE") || strings.Contains(err.Error(), "running") {
		t.Errorf("got %v, want one that names SSL_CERT_FILE", err)
	}
}

// A failed connection is one error of the caller; the pool of go-redis logs each dial to stderr by default.
func TestConnectErrorNamesMissingDatabase(t *testing.T) {
	t.Parallel()
	_, err := tasks.Connect(t.Context(), "redis://"+redistest.Server(t).Addr+"/99")
	if err == nil || !strings.Contains(err.Error(), "it has no database 99; use a lower number") {
		t.Errorf("got %v, want an error that names the database", err)
	}
}

// Managed servers forbid CONFIG, and some of them INFO.
func TestManagedRedis(t *testing.T) {
	t.Parallel()
	client := testutil.Must(tasks.Connect(t.Context(), redistest.Server(t).Managed()))(t)
	if got := client.Redis().(*redis.Client).Options().PoolSize; got < 32 {
		t.Errorf("got a pool of %d connections, want at least 32", got)
	}
	w := newWorld(t, client.Redis())
	wantValue(t, sent(t, w, tasks.Chord(tasks.Each([]int{1, 2}, ID), Sum)), 3)
	if queue, input, err := client.Inspect().Sample(t.Context(), Sum.Name()); err != nil || queue != "" || string(input) != "[0]" {
		t.Errorf("sample: got %s %s, %v, want [0]", queue, input, err)
	}
	testutil.Ok(t, client.Close())
}

// tenant is a client and a worker of a namespace with the schedule "hourly".
type tenant struct {
	client *tasks.Client
	plain  chan string // types of the tasks of asynq's clients that ran
}

// who returns the name of the tenant whose worker ran it.
var who = tasks.New[[]string, string]("namespace.who")

func newTenant(t *testing.T, rdb redis.UniversalClient, name string) *tenant {
	t.Helper()
	n := &tenant{newClient(t, rdb, tasks.Namespace(name)), make(chan string, 1)}
	m := tasks.NewMux()
	tasks.Handle(m, who, func(_ context.Context, before []string) (string, error) {
		return strings.Join(append(before, name), "+"), nil
	})
	runWorker(t, n.client, m, tasks.WorkerConfig{Name: "worker", Grace: time.Second, Asynq: asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		n.plain <- task.Type()
		return nil
	})})
	testutil.Ok(t, n.client.Schedules().Put(t.Context(), tasks.Schedule{Name: "hourly", Spec: "@hourly", Work: who.S(nil)}))
	return n
}

// keysOf returns the keys of a Redis or of all masters of a Cluster.
func keysOf(t *testing.T, rdb redis.UniversalClient) (all []string) {
	t.Helper()
	var mu sync.Mutex
	list := func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	}
	var err error
	if c, ok := rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(t.Context(), list)
	} else {
		err = list(t.Context(), rdb.(*redis.Client))
	}
	testutil.Ok(t, err)
	return all
}

// Programs in different namespaces share a Redis: with the same names of queues, workers, workflows, unique keys and schedules
// they have nothing in common.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	redistest.Every(t, func(t *testing.T, rdb redis.UniversalClient) {
		shop, blog := newTenant(t, rdb, "shop"), newTenant(t, rdb, "b")
		for name, n := range map[string]*tenant{"shop": shop, "b": blog} {
			run := started(t, n.client, tasks.Chord(tasks.Group(who.S(nil), who.S(nil)), who), tasks.ID("nightly"), tasks.Unique("key", time.Hour), tasks.ProgressKeys("of_"+name))
			wantValue(t, run, name+"+"+name+"+"+name)
			testutil.Eventually(t, "a worker has registered the queue", func() bool {
				queues, err := n.client.Inspect().Queues(t.Context())
				return err == nil && len(queues) == 1 && queues[0].Name == "default"
			})
			if list, _, err := n.client.Inspect().Workflows(t.Context(), tasktype.WorkflowFilter{}); err != nil || len(list) != 1 {
				t.Errorf("tenant %s: got workflows %v, %v, want one", name, list, err)
			}
			if list, err := n.client.Inspect().Workers(t.Context()); err != nil || len(list) != 1 {
				t.Errorf("tenant %s: got workers %v, %v, want one", name, list, err)
			}
		}

		// A pause is of one queue, also for asynq.
		testutil.Ok(t, shop.client.PauseQueue(t.Context(), "default"))
		testutil.Ok(t, shop.client.Schedules().Pause(t.Context(), "hourly"))
		if entry, err := blog.client.Inspect().Schedule(t.Context(), "hourly"); err != nil || !entry.Paused.IsZero() {
			t.Errorf("got %+v, %v, want a schedule that runs", entry, err)
		}
		clients := asynq.NewClientFromRedisClient(rdb)
		for _, queue := range []string{"shop:default", "b:default"} {
			testutil.Must(clients.Enqueue(asynq.NewTask("to "+queue, nil), asynq.Queue(queue)))(t)
		}
		if got := <-blog.plain; got != "to b:default" {
			t.Errorf("got task %q", got)
		}
		if got, err := who.S(nil).Do(limited(t), blog.client); err != nil || got != "b" {
			t.Errorf("got %q, %v, want b", got, err)
		}
		stopped := started(t, shop.client, who.S(nil))
		testutil.Ok(t, shop.client.ResumeQueue(t.Context(), "default"))
		if got := <-shop.plain; got != "to shop:default" {
			t.Errorf("got task %q", got)
		}
		wantValue(t, stopped, "shop")
		if got := rdb.Get(t.Context(), "of_shop:nightly:status").Val(); got != "COMPLETE" {
			t.Errorf("got status %q in the progress key, want COMPLETE", got)
		}
		for _, key := range keysOf(t, rdb) {
			if first, _, _ := strings.Cut(key, ":"); !slices.Contains([]string{"shop", "b", "asynq", "of_shop", "of_b"}, first) {
				t.Errorf("key %s is in no namespace", key)
			}
		}
	})
}

// A client with an invalid namespace does nothing.
func TestInvalidNamespace(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	for _, name := range []string{"a b", "a:b", "{a}", "a}", "ä", "asynq", strings.Repeat("n", 1000), "\x00"} {
		if _, err := tasks.Connect(t.Context(), "redis://127.0.0.1:1", tasks.Namespace(name)); !errors.Is(err, tasks.ErrInvalid) {
			t.Errorf("Connect with namespace %.20q: got %v, want ErrInvalid", name, err)
		}
		c := tasks.NewClient(rdb, tasks.Namespace(name))
		worker := testutil.Must(tasks.NewWorker(c, tasks.NewMux(), tasks.WorkerConfig{}))(t)
		calls := map[string]error{"Run": worker.Run(t.Context()), "PauseQueue": c.PauseQueue(t.Context(), "q"), "Writable": c.Writable(t.Context())}
		_, calls["Send"] = who.S(nil).Send(t.Context(), c)
		calls["Schedules.Put"] = c.Schedules().Put(t.Context(), tasks.Schedule{Name: "s", Spec: "@hourly", Work: who.S(nil)})
		for call, err := range calls {
			if !errors.Is(err, tasks.ErrInvalid) || !strings.Contains(err.Error(), "tasks.Namespace") || len(err.Error()) > 500 {
				t.Errorf("%s with namespace %.20q: got %v, want ErrInvalid with the option", call, name, err)
			}
		}
		testutil.Ok(t, c.Close())
	}
	if keys := keysOf(t, rdb); len(keys) > 0 {
		t.Errorf("got keys %v, want none", keys)
	}
}

// shards returns the prefixes of the keys of all shards.
func shards(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	said := testutil.Must(rdb.Get(t.Context(), "muster:store").Result())(t)
	var schema, n int
	if _, err := fmt.Sscan(said, &schema, &n); err != nil {
		t.Fatalf("muster:store holds %q: %v", said, err)
	}
	out := make([]string, n)
	for i := range out {
		out[i] = store.Keys(store.DefaultNamespace).Prefix(i)
	}
	return out
}

// flowKey returns the key of the latest workflow with an id.
func flowKey(t *testing.T, rdb redis.UniversalClient, id string) string {
	t.Helper()
	all := shards(t, rdb)
	shard := all[int(crc32.ChecksumIEEE([]byte(id))%uint32(len(all)))]
	if ref := rdb.Get(t.Context(), shard+"id:"+id).Val(); ref != "" {
		return shard + "w:" + ref
	}
	return shard + "w:" + id + "~"
}

// FuzzParseURL checks that errors contain no password, and that accepted URLs have addresses.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"redis://u:", "redis://:", "redis-cluster://u:", "rediss-sentinel://u:", "unix://u:", "redis://h?password=", "redis-sentinel://h/m?sentinel_password=", "://", "redis://[", "redis://%"} {
		f.Add(s, "@h1:1,h2/3?pool_size=x")
		f.Add(s, "@h/master?db=1")
	}
	f.Add("redis://u:1?", "@h:1/0")
	f.Add("redis-cluster://u:1?", "@h:1")
	f.Fuzz(func(t *testing.T, before, after string) {
		const password = "s3cr3t-w0rd"
		if !strings.HasPrefix(after, "@") && !strings.HasSuffix(before, "password=") {
			return // only a string at the position of a password is one
		}
		text := before + password + after
		o, err := tasks.ParseURL(text)
		if err != nil {
			if strings.Contains(err.Error(), password) {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		if len(o.Addrs) == 0 || len(o.Addrs) > 100 {
			t.Errorf("%q: got the addresses %q", text, o.Addrs)
		}
	})
}

// FuzzNextTick wants the next tick to be later, and the one after it later still.
func FuzzNextTick(f *testing.F) {
	for _, s := range []string{"* * * * *", "0 6 * * 1", "*/7 1-5 * 2 *", "30 0 0 29 2 *", "@every 90s", "@daily", "CRON_TZ=Europe/Berlin 30 2 * * *", "TZ=UTC @hourly", "0 0 31 2 *", "@every 10ms", "TZ=", "0-99999999999 * * * *"} {
		f.Add(s, int64(1_774_746_000))
	}
	f.Fuzz(func(t *testing.T, spec string, at int64) {
		now := time.Unix(at&0x7fffffff, 0)
		next, err := tasks.NextTick(spec, now)
		if err != nil || next.IsZero() { // a date that is years away
			return
		}
		if !next.After(now) {
			t.Errorf("%q after %s ticks at %s", spec, now, next)
		}
		if then, err := tasks.NextTick(spec, next); err != nil || !then.IsZero() && !then.After(next) {
			t.Errorf("%q after %s ticks at %s, %v", spec, next, then, err)
		}
	})
}
