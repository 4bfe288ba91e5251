package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/hibiken/asynqmon"

	"muster/orchestrator/access"
	"muster/tasks"
)

// Root is the path of the dashboard.
const Root = "/asynqmon"

// shared lends a client's connection to asynqmon, which closes it only in Close; Close is never called.
type shared struct{ client *tasks.Client }

func (s shared) MakeRedisClient() any { return s.client.Redis() }

var (
	// outside matches the link to fonts on another host. The page works without them, and an unreachable host would
	// delay it.
	outside = regexp.MustCompile(`<link rel="stylesheet" href="https?://[^"]*"\s*/?>`)
	inline  = regexp.MustCompile(`(?s)<script>(.*?)</script>`)
)

// note is shown above asynqmon's pages: their numbers of tasks are not numbers of nodes.
const note = `<style>#root{position:relative}</style>` +
	`<p style="margin:0;padding:8px 16px;font:14px sans-serif;color:#222;background:#fff3cd">` +
	`<a href="/ui/tasks/">Back to the pages of Muster</a>. These pages show tasks of asynq's own clients. The tasks of workflows are not counted here. ` +
	`For these see <a href="/ui/tasks/workflows">their pages</a>, <code>muster workflows</code>, and the metrics <code>muster_fleet_…</code>. ` +
	`A queue that is paused here is paused for them, too, after at most four seconds.</p>`

var root = []byte(`<div id="root">`)

// queues serves asynqmon under Root: with write to admins, and read-only to all others.
func queues(client *tasks.Client, write bool) http.Handler {
	show := dashboard(client, true)
	if !write {
		return show
	}
	change := dashboard(client, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if access.CallerOf(r.Context()).Role == access.Admin {
			change.ServeHTTP(w, r)
			return
		}
		show.ServeHTTP(w, r)
	})
}

// dashboard serves asynqmon under Root. readOnly disables its actions.
func dashboard(client *tasks.Client, readOnly bool) http.Handler {
	mon := asynqmon.New(asynqmon.Options{RootPath: Root, RedisConnOpt: shared{client}, ReadOnly: readOnly})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, Root)
		if strings.HasPrefix(rest, "/api/") || strings.HasPrefix(rest, "/static/") {
			w.Header().Set("Content-Security-Policy", "default-src 'none'")
			mon.ServeHTTP(w, r)
			return
		}
		// Everything else is the page, or one of its few small files.
		page := &buffer{header: http.Header{}, code: http.StatusOK}
		mon.ServeHTTP(page, r)
		body := page.Bytes()
		if bytes.HasPrefix(bytes.ToLower(body), []byte("<!doctype html>")) {
			body = outside.ReplaceAll(body, nil)
			body = bytes.Replace(body, root, append([]byte(note), root...), 1)
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", policy(body))
		} else if ct := page.header.Get("Content-Type"); ct != "" {
			w.Header().Set("Content-Type", ct)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(page.code)
		_, _ = w.Write(body)
	})
}

// policy allows the page its own parts and the scripts that are written into
// it, and nothing else. Its styles are made while it runs.
func policy(page []byte) string {
	scripts := "'self'"
	for _, m := range inline.FindAllSubmatch(page, -1) {
		sum := sha256.Sum256(m[1])
		scripts += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'self'; script-src " + scripts + "; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
		"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// buffer stores a response so that it can be modified.
type buffer struct {
	bytes.Buffer
	header http.Header
	code   int
}

func (b *buffer) Header() http.Header  { return b.header }
func (b *buffer) WriteHeader(code int) { b.code = code }
