package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v2"

	"muster/internal/limit"
	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
	"muster/tasks"
)

// programWith runs a command with a key for the server, and returns its exit code and output.
func programWith(t *testing.T, key, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	env := environment{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, environ: []string{apiKeyVariable + "=" + key}, hard: t.Context()}
	code = run(t.Context(), env, append([]string{"muster"}, args...))
	return code, out.String(), errs.String()
}

// startDashboard runs muster dashboard on a data directory until the test ends, and returns its URL.
func startDashboard(t *testing.T, redis, dir string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		env := environment{stdin: strings.NewReader(""), stdout: io.Discard, stderr: writer, hard: t.Context()}
		ended <- run(ctx, env, []string{"muster", "dashboard", "--redis", redis, "--data-dir", dir, "--config", "", "--setting", "api.listen=127.0.0.1:0"})
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	address := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		found := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
		buf := make([]byte, 4096)
		for {
			n, err := reader.Read(buf)
			text.Write(buf[:n])
			if url := found.FindString(text.String()); url != "" && bytes.ContainsRune(text.Bytes(), '\n') {
				select {
				case address <- url:
				default:
				}
			}
			if err != nil {
				close(address)
				return
			}
		}
	}()
	url, ok := <-address
	if !ok {
		t.Fatalf("muster dashboard ended with %d", <-ended)
	}
	return url
}

// commandsOfTheAPI returns the names of the commands with the option --server.
func commandsOfTheAPI() (names []string) {
	var walk func(string, []*cli.Command)
	walk = func(prefix string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden {
				continue
			}
			if len(c.Subcommands) == 0 && hasFlag(c, "server") {
				names = append(names, prefix+c.Name)
			}
			walk(prefix+c.Name+" ", c.Subcommands)
		}
	}
	walk("", newApp(environment{}).Commands)
	return names
}

// Each command that calls the API needs the role of its operation: with a key of another role it exits 1 with the reason.
func TestCommandsTakeTheirRole(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.URL(t), t.TempDir()
	server := startDashboard(t, redis, dir)
	keys := map[access.Role]string{}
	for _, role := range access.Roles {
		code, out, errs := programWith(t, "", "", "keys", "create", "--name", string(role), "--role", string(role), "--data-dir", dir, "--redis", redis, "--config", "")
		if code != 0 {
			t.Fatalf("keys create: %d %s%s", code, out, errs)
		}
		keys[role] = regexp.MustCompile(`muster_\S+`).FindString(out)
		if keys[role] == "" {
			t.Fatalf("no key in %q", out)
		}
	}
	testutil.Eventually(t, "the server needs a key", func() bool { // another process created them
		code, _, _ := programWith(t, "", "", "jobs", "list", "--server", server)
		return code == 1
	})
	list := filepath.Join(t.TempDir(), "list.jsonl")
	testutil.Ok(t, os.WriteFile(list, []byte(`{"artifact_id":"b"}`+"\n"), 0o600))
	code, out, errs := programWith(t, keys[access.Operator], "", "jobs", "start", "default", "--prompt", "letters", "--server", server)
	id := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(out)
	if code != 0 || id == "" {
		t.Fatalf("jobs start: %d %s%s", code, out, errs)
	}
	var flows [2]string
	for i := range flows {
		code, out, errs := programWith(t, keys[access.Operator], "", "workflows", "send", "a.task", "1", "--external", "--server", server)
		if code != 0 {
			t.Fatalf("workflows send: %d %s%s", code, out, errs)
		}
		flows[i] = strings.TrimSpace(out)
	}
	register := testutil.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, server+"/v1/agents", strings.NewReader(`{"name": "one", "roles": ["creator"]}`)))(t)
	register.Header.Set("Authorization", "Bearer "+keys[access.Operator])
	register.Header.Set("Content-Type", "application/json")
	registered, err := http.DefaultClient.Do(register)
	if err != nil || registered.Body.Close() != nil || registered.StatusCode != http.StatusCreated {
		t.Fatalf("register an agent: %v, %v", registered, err)
	}
	arguments := map[string]string{
		"jobs start": "default --prompt words", "sites list": "--health", "jobs status": id, "jobs items": id, "jobs decide": id + " a accept",
		"jobs events": "all --follow=false", "jobs retry": id, "jobs cancel": id + " --force", "pause": "site none", "resume": "site none",
		"agents delete":   "one",
		"webhooks create": "https://hooks.example/", "webhooks get": "none", "webhooks delete": "none",
		"webhooks send": "none",
		"sites history": "none a", "scrapes get": "none", "scrapes retry": "none", "scrapes cancel": "none",
		"proxies delete": "192.0.2.1:1", "proxies ban": "192.0.2.1:1", "proxies unban": "192.0.2.1:1",
		"workflows get": "none", "workflows send": "a.task 1 --external", "workflows cancel": flows[0], "workflows retry": "none", "workflows run-again": "none", "workflows output": "none", "workflows revoke": flows[1],
		"schedules put": "other @daily a.task 1 --force", "schedules trigger": "none", "schedules delete": "none",
		"tasks complete": "none 0 --result 1", "workflows delete": "none",
		"queue enqueue": "a", "queue import": list, "queue forget": "none", "limits set": "none 1", "limits hold": "none 1s", "breakers reset": "--all", "keys create": "--name other --role viewer", "keys revoke": "none",
	}
	reads := []string{
		"status", "scrapes list", "scrapes get", "scrapes retry", "scrapes cancel", // the latter fail at the scrape that does not exist
		"jobs list", "jobs status", "jobs items", "jobs events", "agents list",
		"sites list", "sites history", "proxies list", "queue stats", "breakers list",
		"workflows list", "workflows get", "tasks list", "workers list", "queues list", "limits list", "schedules list", "health",
	}
	named := map[string]string{"job": id, "agent": "one", "site": "none", "workflow": flows[0], "queue": "default", "schedule": "none", "artifacts": "default", "webhook": "none"}
	for _, p := range pausables {
		for _, command := range []string{"pause", "resume"} {
			code, out, errs := programWith(t, keys[access.Viewer], "", command, p.kind, named[p.kind], "--server", server)
			if code != 1 || !strings.Contains(errs, "this takes the role ") {
				t.Errorf("%s %s as viewer: got %d %s%s, want it denied", command, p.kind, code, out, errs)
			}
		}
	}
	checked := 0
	for _, name := range commandsOfTheAPI() {
		least := access.Operator
		switch group, _, _ := strings.Cut(name, " "); {
		case slices.Contains(reads, name):
			least = access.Viewer
		case group == "keys" || group == "audit" || group == "webhooks":
			least = access.Admin
		}
		for _, role := range []access.Role{access.Agent, access.Viewer, access.Operator, access.Admin} {
			args := slices.Concat(strings.Fields(name), strings.Fields(arguments[name]), []string{"--server", server})
			code, out, errs := programWith(t, keys[role], "", args...)
			denied := strings.Contains(errs, "this takes the role") || strings.Contains(errs, "a key of the role agent may")
			if want := role != access.Admin && !role.May(least); denied != want || denied && code != 1 || code == 2 {
				t.Errorf("%v as %s: got %d %s%s, want it denied: %v, for a key without the role %s", args, role, code, out, errs, want, least)
			}
			checked++
		}
	}
	if checked < 120 {
		t.Errorf("checked %d, want every command with every role", checked)
	}
	if code, _, errs := programWith(t, "no such key", "", "jobs", "list", "--server", server); code != 1 || !strings.Contains(errs, "key") {
		t.Errorf("with an unknown key: got %d %s, want 1 and that the key is not valid", code, errs)
	}
	if code, _, errs := programWith(t, "", "", "keys", "revoke", "viewer", "--data-dir", dir, "--redis", redis, "--config", ""); code != 0 {
		t.Fatalf("keys revoke: %d %s", code, errs)
	}
	testutil.Eventually(t, "a revoked key is rejected", func() bool { // another process revoked it
		code, _, errs := programWith(t, keys[access.Viewer], "", "jobs", "list", "--server", server)
		return code == 1 && strings.Contains(errs, "the key is revoked")
	})
}

// The error about a server that is not an orchestrator, or has another version, names the server. The key is not sent elsewhere.
func TestServersThatAreNoOrchestratorAreNamed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a request to another host with Authorization %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"HTML": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<title>Router</title>")
		}, "does not respond like an orchestrator"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}, "redirects to"},
		"nothing":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "call the orchestrator"},
		"other version": {func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, "status 404"},
		"other type": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `[7]`)
		}, "decode the response"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(c.answer)
			defer srv.Close()
			u := testutil.Must(url.Parse(srv.URL))(t)
			for _, command := range []string{"jobs list", "jobs cancel x", "keys list", "queue stats", "sites list --health", "workflows list", "workers list"} {
				args := append(strings.Fields(command), "--server", srv.URL)
				code, out, errs := programWith(t, "a secret key", "", args...)
				if code != 1 || !strings.Contains(errs, c.want) || !strings.Contains(errs, u.Host) || strings.Contains(out+errs, "a secret key") {
					t.Errorf("%s: got %d %s%s, want 1, %q and the server, without the key", command, code, out, errs, c.want)
				}
			}
		})
	}
}

// A command ends when its caller interrupts it, although the server does not respond.
func TestSilentServerCanBeInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, interrupt := context.WithCancelCause(t.Context())
	ended := make(chan int, 1)
	go func() {
		env := environment{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, hard: t.Context()}
		ended <- run(ctx, env, []string{"muster", "jobs", "list", "--server", srv.URL})
	}()
	<-asked
	interrupt(errors.New("interrupted"))
	select {
	case code := <-ended:
		if code == 0 {
			t.Error("got exit code 0, want a failure")
		}
	case <-time.After(time.Minute):
		t.Error("the command does not end")
	}
}

// Breakers of sites, hosts and agents are listed and reset, by key or by name.
func TestBreakersAreListedAndReset(t *testing.T) {
	t.Parallel()
	address, dir := redistest.URL(t), t.TempDir()
	opts := testutil.Must(redis.ParseURL(address))(t)
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	muster := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		args = append([]string{"muster", "breakers"}, args...)
		code := run(t.Context(), environment{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, hard: t.Context()}, append(args, "--redis", address, "--data-dir", dir, "--config", ""))
		if code != want {
			t.Fatalf("%q: got exit code %d, want %d: %s%s", args, code, want, &out, &errs)
		}
		return out.String(), errs.String()
	}
	if got, _ := muster(0, "list"); !strings.Contains(got, "All breakers are closed") {
		t.Errorf("got %s, want none", got)
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for key, namespace := range map[string]string{"shop@shop.example": "", "news@news.example": "", "host:files.example": "", "agent:a1": "muster:agents"} {
		b := limit.NewBreaker(rdb, limit.BreakerConfig{Namespace: namespace, Threshold: 1, Logger: quiet})
		permit, _, _, err := b.Allow(t.Context(), key)
		if err == nil {
			err = permit.Failure(t.Context(), "502 Bad Gateway")
		}
		if err == nil {
			_, _, _, err = b.Allow(t.Context(), key)
		}
		testutil.Ok(t, err)
	}
	keys := func() []string {
		t.Helper()
		var list client.Page[limit.BreakerState]
		out, _ := muster(0, "list", "--json")
		testutil.Ok(t, json.Unmarshal([]byte(out), &list))
		var keys []string
		for _, s := range list.Data {
			keys = append(keys, s.Key)
			if s.State != "open" || s.Blocked != 1 {
				t.Errorf("got %+v, want it open with 1 blocked", s)
			}
		}
		return slices.Sorted(slices.Values(keys))
	}
	if got, want := keys(), []string{"agent:a1", "host:files.example", "news@news.example", "shop@shop.example"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, _ := muster(0, "list"); !strings.Contains(got, "502 Bad Gateway") || !strings.Contains(got, "host:files.example  open ") {
		t.Errorf("got %s, want a table", got)
	}
	if _, got := muster(1, "reset", "nowhere"); !strings.Contains(got, "breaker nowhere: no open breaker with this name") {
		t.Errorf("got %s", got)
	}
	for _, wrong := range [][]string{{"reset"}, {"reset", "--all", "shop"}} {
		if _, got := muster(2, wrong...); !strings.Contains(got, "--all") {
			t.Errorf("%q: got %s", wrong, got)
		}
	}
	muster(0, "reset", "shop", "files.example", "shop@shop.example")
	if got, want := keys(), []string{"agent:a1", "news@news.example"}; !slices.Equal(got, want) {
		t.Errorf("after a reset by name: got %q, want %q", got, want)
	}
	muster(0, "reset", "--all", "--json")
	if got := keys(); len(got) != 0 {
		t.Errorf("after a reset of all: got %q, want none", got)
	}
}

func TestHealthByURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.Error(w, "redis is away", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		url, want string
		usage     bool
	}{
		{server.URL + "/health", "", false},
		{server.URL + "/ready", "503 Service Unavailable: redis is away", false},
		{gone.URL + "/health", "not healthy", false},
		{"localhost:8000", "give an http or https URL", true},
		{"", "give an http or https URL", true},
	} {
		err := probeURL(t.Context(), tt.url)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: got %v, want no error", tt.url, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, new(usageError)) != tt.usage {
			t.Errorf("%q: got %v, want …%s… and usage %v", tt.url, err, tt.want, tt.usage)
		}
	}
}

// Every command that connects refuses the store of a newer release and names the fix.
func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	c.run("jobs", "list")
	client := testutil.Must(tasks.Connect(t.Context(), c.redis))(t)
	defer func() { _ = client.Close() }()
	testutil.Ok(t, client.Redis().HSet(t.Context(), "muster:schema", "version", 99).Err())
	for _, args := range []string{
		"start --once", "worker", "jobs list", "workflows list", "queue stats", "agents list", "jobs start --file -",
	} {
		cmd, out := c.start(strings.Fields(args)...)
		const want = "the store in Redis has schema 99, written by a newer release; this one knows 0: upgrade this program"
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: got %v, %s, want %s", args, err, out, want)
		}
	}
}
