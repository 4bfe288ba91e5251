//go:build e2e && unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
)

var (
	anyBlock = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```")
	// volatile is what differs between two runs of a command: IDs, ports and durations.
	volatile = regexp.MustCompile(`\w*…|whsec_\S+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|_[0-9a-f]{8}\b|127\.0\.0\.1:\d+|\d+\.\d s|\d+s ago`)
)

// tutorial is a page whose reader works in a directory.
type tutorial struct {
	dir    string
	env    []string
	blocks map[string][]string // by language
	now    map[string]string   // values of this run by those of the page
}

func newTutorial(t *testing.T, page string) *tutorial {
	t.Helper()
	p := &tutorial{dir: t.TempDir(), blocks: map[string][]string{}, now: map[string]string{}}
	for _, m := range anyBlock.FindAllStringSubmatch(string(testutil.Must(os.ReadFile("../../docs/tutorials/"+page))(t)), -1) {
		p.blocks[m[1]] = append(p.blocks[m[1]], m[2])
	}
	p.env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "HOME="+p.dir)
	return p
}

// file saves a file with changes.
func (p *tutorial) file(t *testing.T, name, text string, changes ...string) {
	t.Helper()
	testutil.Ok(t, os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o700))
	testutil.Ok(t, os.WriteFile(filepath.Join(p.dir, name), []byte(strings.NewReplacer(changes...).Replace(text)), 0o600))
}

// shell starts a command in the directory. A single command has the process of the shell.
func (p *tutorial) shell(t *testing.T, command string) *run {
	t.Helper()
	for old, now := range p.now {
		command = strings.ReplaceAll(command, old, now)
	}
	if !strings.ContainsAny(command, "&\n") {
		command = "exec " + command
	}
	cmd := exec.Command("sh", "-ec", command)
	cmd.Dir, cmd.Stdin = p.dir, strings.NewReader("y\n") // confirmations
	return launch(t, p.env, cmd)
}

// console runs the commands of a block one after the other. Each line of the page must be one of the output, in any order.
func (p *tutorial) console(t *testing.T, block string) {
	t.Helper()
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, output, _ := strings.Cut(part, "\n")
		r := p.shell(t, command)
		select {
		case <-r.done:
		case <-time.After(longest):
			t.Fatalf("%s still runs after %s", command, longest)
		}
		p.printed(t, command, output, r.stdout.String()+r.stderr.String())
	}
}

// printed checks that a command printed what the page shows, and remembers the IDs of this run.
func (p *tutorial) printed(t *testing.T, command, want, got string) {
	t.Helper()
	for line := range strings.Lines(want) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "…" {
			continue
		}
		text := strings.ReplaceAll(strings.Join(fields, " "), "/home/ann/shop", p.dir)
		shown := volatile.FindAllString(text, -1)
		pattern := volatile.ReplaceAllStringFunc(text, func(old string) string {
			if strings.HasSuffix(old, "…") {
				return "\x01"
			}
			return "\x00"
		})
		pattern = strings.NewReplacer("\x00", "("+volatile.String()+")", "\x01", `(.*?)`, " ", `[^\S\n]+`).Replace(regexp.QuoteMeta(pattern))
		m := regexp.MustCompile(`(?m)^\s*` + pattern + `\s*$`).FindStringSubmatch(got)
		if m == nil {
			t.Errorf("%s: the page has the line\n%s\nwhich this output has not:\n%s", command, text, got)
			continue
		}
		for i, old := range shown {
			if old != "…" {
				p.now[old] = m[i+1]
			}
		}
	}
}

// TestFirstSite follows docs/tutorials/first-site.md.
func TestFirstSite(t *testing.T) {
	t.Parallel()
	p := newTutorial(t, "first-site.md")
	demo := p.shell(t, "muster demo --keep")
	var shop string
	demo.until(t, "the demo is done", func() bool {
		all := demo.stdout.String() + demo.stderr.String()
		if m := regexp.MustCompile(`shop\s+(http://\S+)`).FindStringSubmatch(all); m != nil {
			shop = strings.TrimSuffix(m[1], "/") + "/"
		}
		return shop != "" && strings.Contains(all, "/ui/")
	})
	p.env = append(p.env, "SHOP="+shop)
	p.shell(t, strings.TrimSpace(p.blocks["sh"][2])).wait(t, 0)
	definition := strings.ReplaceAll(p.blocks["yaml"][0], "http://127.0.0.1:44709", strings.TrimSuffix(shop, "/"))
	p.file(t, "shop.yaml", definition)
	p.console(t, p.blocks["console"][0])
	p.console(t, p.blocks["console"][1])
	for line := range strings.Lines(p.blocks["yaml"][1]) {
		key, _, _ := strings.Cut(line, ":")
		definition = regexp.MustCompile(`(?m)^      `+key+`:.*\n`).ReplaceAllString(definition, "      "+line)
	}
	p.file(t, "shop.yaml", definition)
	p.console(t, p.blocks["console"][2])
	p.console(t, p.blocks["console"][3])
	p.console(t, strings.Replace(p.blocks["console"][4], "head -1", "cat", 1)) // the first record is the one that was fetched first
}

// TestFirstWorkflow follows docs/tutorials/first-workflow.md, with shorter chapters that fail less often.
func TestFirstWorkflow(t *testing.T) {
	t.Parallel()
	p := newTutorial(t, "first-workflow.md")
	testutil.Ok(t, os.Symlink(testutil.Must(filepath.Abs("../.."))(t), filepath.Join(p.dir, "muster")))
	p.env = append(os.Environ(), "REDIS_URL="+redistest.URL(t))
	p.shell(t, strings.Replace(p.blocks["sh"][0], "redis-server --save", "true", 1)).wait(t, 0)
	p.dir = filepath.Join(p.dir, "hello")
	p.file(t, "main.go", p.blocks["go"][0], "time.Sleep(time.Second)", "time.Sleep(time.Second / 5)", "rand.IntN(4)", "rand.IntN(40)", "localhost:8080", "localhost:0")
	build, work, _ := strings.Cut(strings.TrimSpace(p.blocks["sh"][1]), "\n")
	p.shell(t, build).wait(t, 0)
	worker := p.shell(t, work)
	worker.until(t, "the worker started", func() bool { return strings.Contains(worker.stdout.String(), "press Ctrl-C to stop") })
	send, output, _ := strings.Cut(strings.TrimPrefix(p.blocks["console"][0], "$ "), "\n")
	sender := p.shell(t, send)
	sender.until(t, "the workflow was sent", func() bool { return strings.HasPrefix(sender.stdout.String(), "sent ") })
	kill9(t, worker.cmd.Process.Pid)
	<-worker.done
	worker = p.shell(t, work)
	sender.wait(t, 0)
	if want := output[strings.Index(output, "\n"):]; !strings.HasSuffix(sender.stdout.String(), want) {
		t.Errorf("got %q, want %q at the end", sender.stdout.String(), want)
	}
	worker.interrupt(t)
	worker.wait(t, 0)
}

// TestFirstPipeline follows docs/tutorials/first-pipeline.md.
func TestFirstPipeline(t *testing.T) {
	t.Parallel()
	interpreter(t, "python3")
	p := newTutorial(t, "first-pipeline.md")
	api := testutil.FreeAddr(t)
	p.env = append(p.env, "MUSTER_API__LISTEN="+api, "MUSTER_API=http://"+api)
	p.file(t, "data/pipelines/letters.yaml", p.blocks["yaml"][0])
	system := p.shell(t, "muster start")
	system.until(t, "the API", func() bool { return strings.Contains(system.stdout.String()+system.stderr.String(), api) })
	p.console(t, p.blocks["console"][0])
	p.file(t, "letters.txt", p.blocks["text"][0])
	p.console(t, p.blocks["console"][1])
	p.file(t, "agent.py", p.blocks["python"][0])
	command, output, _ := strings.Cut(strings.TrimPrefix(p.blocks["console"][2], "$ "), "\n")
	agent := p.shell(t, command)
	agent.until(t, "all letters", func() bool { return strings.Count(agent.stdout.String(), "sorter ") == 4 })
	p.printed(t, command, output, agent.stdout.String())
	p.console(t, p.blocks["console"][3])
	agent.interrupt(t)
	<-agent.done

	// One of two agents is killed. The other one does its letter after half a minute.
	p.file(t, "agent.py", p.blocks["python"][0], "def sort(item):  # role sorter: one item\n", "def sort(item):\n    time.sleep(5)\n")
	var agents []*run
	last := ""
	for line := range strings.Lines(p.blocks["sh"][1]) {
		if command, ok := strings.CutSuffix(strings.TrimSpace(line), " &"); ok {
			agents = append(agents, p.shell(t, command))
		} else {
			last = strings.TrimSpace(line)
		}
	}
	job := p.shell(t, last)
	agents[1].until(t, "the letters", func() bool {
		return strings.Contains(agents[0].stdout.String()+agents[1].stdout.String(), "splitter ")
	})
	kill9(t, agents[0].cmd.Process.Pid)
	job.wait(t, 0)
	agents[1].interrupt(t)
	system.interrupt(t)
	for _, r := range []*run{agents[1], system} {
		<-r.done
	}
}
