//go:build e2e && unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/orchestrator/demo"
	"muster/orchestrator/redisd"
	"muster/tasks"
)

// notRun are the commands of pages that TestPages does not run, by their beginning, with the reason.
var notRun = map[string]string{
	"muster start":                   "runs for all pages",
	"muster start --setting":         "needs another data directory: TestFirstOfTwoStops",
	"muster start --once":            "TestWorkersKilled and others",
	"muster store copy --to":         "TestEmbeddedRedisKilled",
	"MUSTER_AGENTS__ALLOW=":          "examples/agents has a test of goagent",
	"go run ./examples/agents":       "examples/agents has a test of goagent",
	"redis-cli --rdb":                "TestCopyOfRedisIsRestored",
	"mkdir restored":                 "TestCopyOfRedisIsRestored, with the lines below",
	"redis-server --dir":             "TestCopyOfRedisIsRestored",
	"redis-cli -p 7000":              "TestCopyOfRedisIsRestored",
	"MUSTER_API__LISTEN=0.0.0.0":     "needs a network; the chaos tests have workers on other data directories",
	"muster worker ":                 "needs a network; the page README.md runs one on another data directory",
	"make ":                          ".ci/run; TestReferencesOnPagesExist checks the targets",
	"go run ./cmd/muster demo":       "TestDemoOnABareMachine",
	"go install ./cmd/muster":        "TestModuleIsInstalled",
	"go doc ./tasks":                 "TestReadmeProgram",
	"go mod ":                        "TestReadmeProgram",
	"git clone ":                     "TestReadmeProgram",
	"mkdir hello":                    "TestReadmeProgram",
	"redis-cli -p 26379 sentinel":    "needs Sentinel: TestPlannedFailover",
	"redis-cli -p 6379 cluster":      "needs a cluster: TestPlannedClusterFailover",
	"redis-cli --cluster":            "needs a cluster: the chaos tests",
	"echo 'rediss://":                "needs Redis with TLS: orchestrator/redisd",
	"export MUSTER_REDIS__URL_FILE=": "needs Redis with TLS: orchestrator/redisd",
	"export SSL_CERT_FILE=":          "needs Redis with TLS: orchestrator/redisd",
	"muster dashboard":               "cmd/muster tests it on another port",
	"muster render":                  "needs Chromium: sites/render",
	"muster breakers reset":          "needs an open breaker: TestBreakersAreListedAndReset",
	"scrapy ":                        "another program",
	"sha256sum ":                     "needs a release",
	"tar ":                           "needs a release",
	"install ":                       "needs root; cmd/muster verifies the units",
	"mkdir -p /etc/muster":           "needs root",
	"systemd-sysusers":               "needs systemd",
	"systemctl ":                     "needs systemd",
	"cd /etc/muster":                 "needs the unit of systemd",
	"export MUSTER_DATA_DIR=/var":    "needs the unit of systemd",
	"alias muster=":                  "needs the unit of systemd",
	"kubectl ":                       "needs Kubernetes; scripts/lint checks the manifests",
	"password=$(openssl":             "needs Kubernetes",
}

var (
	// commandOnPage matches blocks of code, and commands in the text.
	commandOnPage = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```|`((?:muster|curl|redis-cli|make|go run|go mod|go doc|go install) [^`\n]+)`")
	// nameOnPage matches the name of a command without its arguments, which TestReferencesOnPagesExist checks.
	nameOnPage  = regexp.MustCompile(`^muster (scrape|agents delete|pause \w+|schedules (put|trigger|delete)|workflows list --name|sites (test|get)|jobs start --help)$`)
	placeholder = regexp.MustCompile(`\b[A-Z][A-Z-]*[A-Z]\b`)
	shellState  = regexp.MustCompile(`^(export )?\w+=\S*( \w+=\S*)*$`)
	// serves matches commands that run until they are stopped.
	serves = regexp.MustCompile(` &$| (--follow|--metrics-listen ADDRESS)$|^muster (judge|proxies serve|worker --redis)\b`)
)

// pageCommand is a command of a page, and the output that the page shows.
type pageCommand struct{ text, output string }

func commandsOf(page string) (list []pageCommand) {
	for _, m := range commandOnPage.FindAllStringSubmatch(page, -1) {
		language, block := m[1], m[2]
		switch {
		case m[3] != "":
			list = append(list, pageCommand{text: m[3]})
		case language == "console":
			for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
				text, output, _ := strings.Cut(part, "\n")
				text, _, _ = strings.Cut(text, " #")
				list = append(list, pageCommand{text, output})
			}
		case language == "sh", language == "" && strings.HasPrefix(block, "muster "):
			text := ""
			for line := range strings.Lines(block) {
				if output, ok := strings.CutPrefix(line, "# {"); ok && len(list) > 0 {
					list[len(list)-1].output += "{" + output
					continue
				}
				line, _, _ = strings.Cut(line, " #")
				if text += line; !strings.HasSuffix(text, "\\\n") && strings.Count(text, "'")%2 == 0 {
					list, text = append(list, pageCommand{text: text}), ""
				}
			}
		}
	}
	for i := range list {
		list[i].text = strings.TrimSpace(list[i].text)
	}
	return slices.DeleteFunc(list, func(c pageCommand) bool { return c.text == "" || c.text[0] == '#' || nameOnPage.MatchString(c.text) })
}

// TestPages runs the commands of the other pages on one running system. Each must succeed.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "redis-cli", "python3", "openssl"} {
		interpreter(t, program)
	}
	w := newWorld(t)
	pages := append([]string{"../../README.md"}, testutil.Must(filepath.Glob("../../docs/*/*.md"))(t)...)
	pages = append(pages, "../../sites/README.md", "../../examples/agents/README.md")
	pages = slices.DeleteFunc(pages, func(page string) bool { return strings.Contains(page, "tutorials/") })
	last := "../../docs/how-to/security.md" // from then on each request needs a key
	pages = append(slices.DeleteFunc(pages, func(page string) bool { return page == last }), last)
	unused, n := map[string]bool{}, 0
	for start := range notRun {
		unused[start] = true
	}
	for _, page := range pages {
		text := string(testutil.Must(os.ReadFile(page))(t))
		if strings.Contains(text, "\nMade by `go generate") {
			continue
		}
		var commands []pageCommand
	next:
		for _, c := range commandsOf(text) {
			for start := range notRun {
				if c.text == start || c.text+" " == start || c.text == start+" &" || strings.HasPrefix(c.text, start) && start != "muster start" {
					delete(unused, start)
					continue next
				}
			}
			commands = append(commands, c)
		}
		if n += len(commands); len(commands) > 0 {
			t.Run(strings.TrimPrefix(page, "../../"), func(t *testing.T) { w.follow(t, commands) })
		}
	}
	if len(unused) > 0 || n < 180 {
		t.Errorf("ran %d commands; no page has those beginning with %v", n, unused)
	}
}

// world is the running system of TestPages, and the world around it.
type world struct {
	*fleet
	env    []string
	client *tasks.Client
	redis  string // its URL
	site   string // URL of a website, which also receives webhooks
	cache  string // directory of the cache of pages
	// What placeholders of the same command refer to.
	old, review, webhook string
}

// Charge fails; review waits for a person.
var (
	prepare = tasks.New[map[string]int, map[string]int]("prepare")
	count   = tasks.New[string, int]("text.count")
	charge  = tasks.New[map[string]int, int]("charge")
	review  = tasks.New[int, map[string]bool]("article.review", tasks.External())
)

func newWorld(t *testing.T) *world {
	t.Helper()
	site := testutil.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/", "/lamps", "/catalogue":
			fmt.Fprint(rw, `<h1>Lamps</h1><div class=product><h3><a href=/lamp/1>One</a></h3></div><div class=product><h3><a href=/lamp/2>Two</a></h3></div> Add to cart`)
		case "/lamp/1", "/lamp/2":
			fmt.Fprintf(rw, `<h1>Lamp %c</h1><p class=price>9.95 EUR</p>`, r.URL.Path[6])
		case "/1.pdf", "/2.pdf":
			rw.Header().Set("Content-Type", "application/pdf")
			fmt.Fprint(rw, "%PDF-1.4 ")
		case "/robots.txt":
			fmt.Fprint(rw, "User-agent: *\nDisallow: /private/\n")
		case "/muster", "/billing", "/in":
		default:
			http.NotFound(rw, r)
		}
	}))
	dir := t.TempDir()
	around := testutil.Must(demo.Start(t.Context(), demo.Config{Dir: dir, Proxies: 6}))(t)
	t.Cleanup(func() { _ = around.Close() })
	host := testutil.Must(url.Parse(site.URL))(t).Host
	w := &world{site: site.URL, cache: filepath.Join(dir, "pages")}
	w.fleet = newFleet(t, map[string]any{
		"network": map[string]any{"allow": []string{host}},
		"archive": "sqlite:" + filepath.Join(dir, "workflows.db"),
		"proxies": map[string]any{"sources": around.Sources, "judges": []string{around.Judge}, "judge_key": around.JudgeKey, "allow_local": true, "min_usable": 1},
		"jobs":    map[string]any{"dedupe": "allow"},
		"sites":   map[string]any{"cache": w.cache},
	})
	p := &tutorial{dir: w.dir}
	definition := "site: NAME\nbase_url: " + site.URL + "\nstart: [/]\nlisting: {links: .product h3 a}\n" +
		"records:\n  lamp:\n    key: [name]\n    fields:\n      name: {css: h1, required: true}\n      price: {css: .price, type: price}\n" +
		"politeness: {delay: 10ms}\nproxy: {fallback: direct}\n"
	for file, name := range map[string]string{"data/sites/shop.example.yaml": "shop.example", "shop.yaml": "shop", "books.yaml": "books"} {
		p.file(t, file, definition, "NAME", name)
	}
	p.file(t, "data/sites/slow.yaml", definition, "NAME", "slow", "10ms", "1h")
	p.file(t, "data/sites/_defaults.yaml", "user_agent: reader\n")
	p.file(t, "data/pipelines/open.yaml", "stages: [{name: make, role: nobody, takes: job}]\n")
	failing := "stages:\n  - {name: make, role: maker-KIND, takes: job}\n  - {name: check, role: checker-KIND, takes: item, max_retries: 0}\n"
	p.file(t, "data/pipelines/failing.yaml", failing, "KIND", "failing")
	p.file(t, "data/pipelines/reviewed.yaml", failing, "KIND", "reviewed", "max_retries: 0", "max_retries: 0, review: true")
	p.file(t, "requirements.txt", "The door must be red.\n")
	p.file(t, "lists/mine.txt", "127.0.0.1:9\n")
	testutil.Ok(t, os.Symlink(testutil.Must(filepath.Abs("../../examples"))(t), filepath.Join(w.dir, "examples")))

	w.start(t)
	w.redis = testutil.Must(redisd.Discover(t.Context(), filepath.Join(w.dir, "data")))(t)
	w.client = testutil.Must(tasks.Connect(t.Context(), w.redis))(t)
	t.Cleanup(func() { _ = w.client.Close() })
	mux := tasks.NewMux()
	tasks.Handle(mux, prepare, func(_ context.Context, in map[string]int) (map[string]int, error) { return in, nil })
	tasks.Handle(mux, count, func(_ context.Context, text string) (int, error) { return len(strings.Fields(text)), nil })
	tasks.Handle(mux, charge, func(context.Context, map[string]int) (int, error) { return 0, errors.New("card declined") })
	worker := testutil.Must(tasks.StartWorker(t.Context(), w.client, mux, tasks.WorkerConfig{}))(t)
	t.Cleanup(func() { worker.Stop() })
	password := testutil.Must(os.ReadFile(filepath.Join(w.dir, "data", "redis", "password")))(t)
	w.env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "HOME="+w.dir, "MUSTER_CONFIG="+w.conf,
		"MUSTER_API="+w.url, "REDISCLI_AUTH="+strings.TrimSpace(string(password)), "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")
	return w
}

// follow runs the commands of a page, and checks the outputs that the page shows.
func (w *world) follow(t *testing.T, commands []pageCommand) {
	p := &tutorial{dir: w.dir, env: w.env, now: map[string]string{}}
	examples := strings.NewReplacer("curl ", "curl --silent --show-error --fail-with-body ", "redis-cli ", "redis-cli -p $(cat data/redis/port) ",
		"http://127.0.0.1:8000", w.url, "https://ops.example.org", w.site, "https://hooks.example", w.site, "https://example.org", w.site,
		"https://shop.example", w.site, " --sink postgres://me@db.example/app", "", "DIR/_defaults", "data/sites/_defaults", "[FILE]", "", "[SITE]", "", "MUSTER_PROXIES__JUDGE_KEY_FILE=judge.key ", "",
		" 198.18.0.7", " PROXY", "ADDRESS", "127.0.0.1:0", "--cache pages", "--cache "+w.cache, "1795417563164-0", "DELIVERY", "proxies serve", "proxies serve --listen 127.0.0.1:0", "quotes.toscrape.com", "shop.example",
		"muster worker --redis redis://host:6379/0", "MUSTER_CONFIG= MUSTER_DATA_DIR=elsewhere muster worker --redis "+w.redis,
		":80 ", "127.0.0.1:0 ", ":443 ", "127.0.0.1:0 ", "SELECTOR…", "h1", "…", "00000000")
	state := ""
	var servers []*run
	for _, c := range commands {
		switch {
		case c.text == "cat papers.jsonl":
			p.file(t, "papers.jsonl", c.output, "http://127.0.0.1:8997", w.site)
		case strings.HasPrefix(c.text, "curl -s $api/agents "):
			w.itemJob(t, "default")
		}
		command := c.text
		for old, now := range p.now {
			command = strings.ReplaceAll(command, old, now)
		}
		command = examples.Replace(command)
		command = placeholder.ReplaceAllStringFunc(command, func(name string) string {
			if now := w.value(t, command, name); now != "" {
				return now
			}
			return name
		})
		if shellState.MatchString(command) {
			state += command + "\n"
			continue
		}
		began := time.Now()
		r := p.shell(t, state+strings.TrimSuffix(command, " &")+"\n")
		if serves.MatchString(c.text) {
			servers = append(servers, r)
			start, _, _ := strings.Cut(c.output, ":")
			r.until(t, "its output", func() bool {
				all := r.stdout.String() + r.stderr.String()
				return strings.Contains(all, start) && all != "" || strings.HasPrefix(command, "python3")
			})
		} else {
			<-r.done // a command that hangs is ended by the timeout of the test
			if !r.cmd.ProcessState.Success() {
				t.Errorf("%s: %v\n%s", command, r.cmd.ProcessState, r.stderr.String())
			}
		}
		p.printed(t, command, c.output, r.stdout.String()+r.stderr.String())
		if strings.HasPrefix(command, "muster scrape shop.yaml --cache") && !strings.Contains(r.stderr.String(), "--cache has no effect") {
			t.Errorf("%s: got no warning that other workers fetch the pages", command)
		}
		if paused, ok := strings.CutPrefix(command, "muster pause "); ok {
			w.muster(t, append([]string{"resume"}, strings.Fields(paused)...)...)
		}
		t.Logf("%s %s", time.Since(began).Round(time.Millisecond), command)
	}
	for _, r := range servers {
		select {
		case <-r.done:
			t.Errorf("%v: %v", r.cmd.Args, r.cmd.ProcessState)
		default:
		}
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM)
		<-r.done
	}
}

// value returns an example for a placeholder in a command, or "".
func (w *world) value(t *testing.T, command, name string) string {
	t.Helper()
	var made struct {
		ID     string
		Scrape string `json:"job_id"`
	}
	switch name {
	case "SITE":
		return "shop.example"
	case "URL":
		return w.site
	case "KEY":
		return w.site + "/lamp/1"
	case "DIR":
		return "pages"
	case "DATA-DIR":
		return "data"
	case "LIST":
		return "lists/mine.txt"
	case "QUEUE":
		return "default"
	case "JOB", "NEW":
		if strings.Contains(command, "decide") {
			return w.itemJob(t, "reviewed")
		}
		if strings.Contains(command, "retry") {
			made.ID = w.itemJob(t, "failing")
			testutil.Eventually(t, "the end of the job", func() bool {
				var got struct{ Status string }
				return w.get("/v1/jobs/"+made.ID, &got) == nil && got.Status == "completed"
			})
			return made.ID
		}
		w.do(t, http.MethodPost, "/v1/jobs", map[string]any{"prompt": "The door is red.", "pipeline": "open"}, &made)
		if name == "NEW" {
			w.old = made.ID
			w.do(t, http.MethodPost, "/v1/jobs", map[string]any{"prompt": "The door is green.", "pipeline": "open", "version_of": w.old}, &made)
		}
	case "OLD":
		return w.old
	case "ID":
		if strings.Contains(command, "cancel") {
			return testutil.Must(review.S(1).Send(t.Context(), w.client))(t).ID()
		}
		r := testutil.Must(tasks.Chain(tasks.Chain(prepare.S(nil), prepare), charge).Send(t.Context(), w.client, tasks.Name("import"), tasks.Labels(map[string]string{"team": "x"})))(t)
		if _, err := r.Wait(t.Context()); err == nil {
			t.Error("the workflow succeeded")
		}
		made.ID = r.ID()
	case "WORKFLOW":
		w.review = testutil.Must(review.S(1).Send(t.Context(), w.client))(t).ID()
		return w.review
	case "NODE":
		return testutil.Must(w.client.Workflow(w.review).Nodes(t.Context()))(t)[0].ID
	case "SCRAPE":
		site := "shop.example"
		if strings.Contains(command, "cancel") {
			site = "slow"
		}
		if w.do(t, http.MethodPost, "/v1/scrapes", map[string]any{"site": site}, &made); site != "slow" {
			testutil.Eventually(t, "the scrape", func() bool {
				var got struct{ Status string }
				return w.get("/v1/scrapes/"+made.Scrape, &got) == nil && got.Status == "COMPLETE"
			})
		}
		return made.Scrape
	case "AGENT":
		w.do(t, http.MethodPost, "/v1/agents", map[string]any{"name": "spare", "roles": []string{"spare"}}, &made)
	case "WEBHOOK", "NAME":
		w.webhook = fmt.Sprint("hook-", time.Now().UnixNano())
		w.do(t, http.MethodPost, "/v1/webhooks", map[string]any{"name": w.webhook, "url": w.site + "/muster"}, nil)
		return w.webhook
	case "DELIVERY":
		if strings.Contains(command, " ops ") {
			w.webhook = "ops"
		}
		w.do(t, http.MethodPost, "/v1/webhooks/"+w.webhook+"/test", map[string]any{}, nil)
		var list struct{ Data []struct{ ID, State string } }
		testutil.Eventually(t, "a delivery", func() bool {
			return w.get("/v1/webhooks/"+w.webhook+"/deliveries", &list) == nil && len(list.Data) > 0 && list.Data[0].State == "delivered"
		})
		return list.Data[0].ID
	case "PROXY":
		var list struct{ Data []struct{ ID string } }
		w.do(t, http.MethodGet, "/v1/proxies", nil, &list)
		return list.Data[0].ID
	}
	return made.ID
}

// itemJob creates a job of a pipeline with the item req-17, which in the pipeline reviewed waits for a person.
func (w *world) itemJob(t *testing.T, pipeline string) string {
	t.Helper()
	var job, agent struct{ ID string }
	w.do(t, http.MethodPost, "/v1/jobs", map[string]any{"prompt": "The lamp must burn.", "pipeline": pipeline}, &job)
	roles := []string{"maker-" + pipeline, "checker-" + pipeline}
	if pipeline == "default" {
		roles = []string{"creator"}
	}
	w.do(t, http.MethodPost, "/v1/agents", map[string]any{"name": pipeline, "roles": roles}, &agent)
	for i := 0; i < len(roles); {
		var lease struct {
			Assignments []struct {
				ID    string
				Fence int
				Job   struct{ ID string }
			}
		}
		w.do(t, http.MethodPost, "/v1/agents/"+agent.ID+"/lease", map[string]any{"wait_seconds": 30, "roles": roles[i : i+1]}, &lease)
		if len(lease.Assignments) != 1 {
			t.Fatalf("no work for the role %s", roles[i])
		}
		a := lease.Assignments[0]
		body, call := map[string]any{"agent": agent.ID, "fence": a.Fence}, "complete"
		if i == 0 {
			body["items"] = []any{map[string]string{"key": "req-17", "text": "The lamp must burn."}}
		} else {
			body["error"], body["permanent"], call = "unclear", true, "fail"
		}
		w.do(t, http.MethodPost, "/v1/assignments/"+a.ID+"/"+call, body, nil)
		if a.Job.ID == job.ID { // otherwise it was one that a command retried
			i++
		}
	}
	w.do(t, http.MethodDelete, "/v1/agents/"+agent.ID, nil, nil)
	return job.ID
}
