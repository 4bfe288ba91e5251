//go:build e2e && unix

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
	"muster/scripts/internal/respawn"
)

// scale is the size of TestItemsAreSettledOnce.
type scale struct{ jobs, items, kills int }

// scaleOf reads MUSTER_E2E_AGENTS, for example 200x50x60: jobs, items per job, kills.
func scaleOf(t *testing.T) scale {
	t.Helper()
	s := scale{jobs: 20, items: 20, kills: 12}
	if text := os.Getenv("MUSTER_E2E_AGENTS"); text != "" {
		if n, err := fmt.Sscanf(text, "%dx%dx%d", &s.jobs, &s.items, &s.kills); err != nil || n != 3 {
			t.Fatalf("MUSTER_E2E_AGENTS=%s: must be jobs, items per job and kills, for example 200x50x60", text)
		}
	}
	return s
}

// kept is a process that is restarted whenever it exits.
type kept struct{ *respawn.Process }

// keep keeps a process running until the end of the test.
func keep(t *testing.T, dir, name string, command func() *exec.Cmd) kept {
	t.Helper()
	p, err := respawn.Start(dir, name, command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(0)
		if t.Failed() {
			text, _ := os.ReadFile(p.Log)
			t.Logf("%s, %d starts:\n%s", name, p.Starts(), tail(string(text)))
		}
	})
	return kept{p}
}

// freeze freezes the process for longer than a lease. The channel is closed when it continues.
func (k kept) freeze() (thawed chan struct{}) {
	thawed = make(chan struct{})
	pid := k.PID()
	if pid == 0 || syscall.Kill(-pid, syscall.SIGSTOP) != nil {
		close(thawed)
		return thawed
	}
	time.AfterFunc(frozen, func() {
		_ = syscall.Kill(-pid, syscall.SIGCONT) // it may have been killed in the meantime
		close(thawed)
	})
	return thawed
}

// frozen is the duration of a freeze, longer than the lease of an assignment with its grace period.
const frozen = 7 * time.Second

// acknowledged is a result of an agent that the API has confirmed. The agent in Go includes the assignment, because an assignment is
// pushed again after the death of its pusher and then settled again.
type acknowledged struct{ Job, Key, Assignment, Agent, Verdict string }

// acknowledgements reads the confirmed results from the output of the agents.
func (k kept) acknowledgements(t *testing.T) (all []acknowledged) {
	t.Helper()
	text, err := os.ReadFile(k.Out)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var a acknowledged
		if json.Unmarshal(lines.Bytes(), &a) == nil && a.Key != "" { // the last line before a kill may be incomplete
			all = append(all, a)
		}
	}
	return all
}

// chaos is a fleet whose parts are killed.
type chaos struct {
	*fleet
	parts []kept
}

// newChaos starts Redis, muster with its API, four polling agents and two push agents.
func newChaos(t *testing.T) *chaos {
	t.Helper()
	python := interpreter(t, "python3")
	server := redisServer(t)
	redisPort, first, second := testutil.FreePort(t), testutil.FreePort(t), testutil.FreePort(t)
	push := []string{fmt.Sprintf("http://127.0.0.1:%d", first), fmt.Sprintf("http://127.0.0.1:%d", second)}
	c := &chaos{fleet: newFleet(t, map[string]any{
		"redis":    map[string]any{"url": fmt.Sprintf("redis://127.0.0.1:%d/0", redisPort)},
		"jobs":     map[string]any{"dedupe": "allow", "lease": "5s", "check_every": "1s", "max_retries": 50},
		"agents":   map[string]any{"allow": push, "health_every": "1s"},
		"shutdown": map[string]any{"drain": "5s"},
	})}
	goagent := filepath.Join(c.dir, "goagent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", goagent, "muster/examples/agents/goagent").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	add := func(name string, env []string, args ...string) {
		c.parts = append(c.parts, keep(t, c.dir, name, func() *exec.Cmd {
			cmd := exec.Command(args[0], args[1:]...)
			cmd.Dir = c.dir
			cmd.Env = append(os.Environ(), append(env, "MUSTER_API="+c.url, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...)
			return cmd
		}))
	}
	// appendfsync always: writes are in the kernel before the reply, and the kernel keeps them if the process is killed.
	add("redis", nil, server, "--port", fmt.Sprint(redisPort), "--bind", "127.0.0.1", "--dir", c.dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	add("muster", nil, binary, "start", "--config", c.conf, "--progress", "none")
	for _, name := range []string{"creator-1", "creator-2", "validator-1", "validator-2"} {
		role, _, _ := strings.Cut(name, "-")
		add(name, nil, python, exampleAgent(t, role+".py"))
	}
	for i, url := range push {
		later := []string{"", "1"}[i]
		add(fmt.Sprintf("push-%d", i+1), []string{"AGENT_LISTEN=" + strings.TrimPrefix(url, "http://"), "AGENT_URL=" + url, "AGENT_LATER=" + later}, goagent)
	}
	testutil.Eventually(t, "the API", func() bool { return c.get("/ready", nil) == nil })
	return c
}

// victim chooses a part: Redis, muster, a polling agent or a push agent, with equal probability.
func (c *chaos) victim(random *rand.Rand) kept {
	groups := [][]kept{c.parts[:1], c.parts[1:2], c.parts[2:6], c.parts[6:]}
	group := groups[random.IntN(len(groups))]
	return group[random.IntN(len(group))]
}

// create creates a job, retrying while the API is down.
func (c *chaos) create(t *testing.T, n, items int) (id string) {
	t.Helper()
	name := fmt.Sprintf("job %d", n)
	testutil.Eventually(t, name, func() bool {
		var j agentJob
		_, err := c.call(http.MethodPost, "/jobs", map[string]any{"prompt": sentences(name, items)}, &j, "Idempotency-Key", name)
		id = j.ID
		return err == nil
	})
	return id
}

// TestItemsAreSettledOnce kills the orchestrator with its API, Redis and the agents with SIGKILL at random, and freezes agents for
// longer than their leases, while agents in Python and Go process jobs. Every job completes, and each of its items is settled once,
// with the result that was confirmed to its agent.
func TestItemsAreSettledOnce(t *testing.T) {
	t.Parallel()
	s := scaleOf(t)
	c := newChaos(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))

	var ids []string
	var thawing []chan struct{}
	for kill := range s.kills {
		for len(ids) < s.jobs*(kill+1)/s.kills {
			ids = append(ids, c.create(t, len(ids), s.items))
		}
		<-time.After(time.Duration(100+random.IntN(900)) * time.Millisecond)
		victim := c.victim(random)
		testutil.Eventually(t, "a running "+victim.Name, func() bool { return victim.Signal(syscall.SIGKILL) })
		if agents := c.parts[2:]; kill%3 == 0 {
			thawing = append(thawing, agents[random.IntN(len(agents))].freeze())
		}
	}
	for _, thawed := range thawing {
		<-thawed
	}
	c.awaitEnd(t, ids)
	c.wantSettledOnce(t, ids, s.items)
	for _, p := range c.parts {
		t.Logf("%s: %d starts", p.Name, p.Starts())
	}
}

// awaitEnd waits until all jobs have finished.
func (c *chaos) awaitEnd(t *testing.T, ids []string) {
	t.Helper()
	open := ids
	deadline := time.Now().Add(time.Minute + time.Duration(len(ids))*5*time.Second)
	for len(open) > 0 {
		testutil.Becomes(func() bool {
			var still []string
			for _, id := range open {
				var j agentJob
				if err := c.get("/jobs/"+id, &j); err != nil || j.Status == "created" || j.Status == "processing" {
					still = append(still, id)
				}
			}
			fewer := len(still) < len(open)
			open = still
			return fewer
		})
		if len(open) > 0 && time.Now().After(deadline) {
			var j json.RawMessage
			err := c.get("/jobs/"+open[0], &j)
			t.Fatalf("%d of %d jobs have not finished, the first is %s, %v", len(open), len(ids), j, err)
		}
	}
}

// wantSettledOnce compares the items of all jobs with the confirmed results.
func (c *chaos) wantSettledOnce(t *testing.T, ids []string, items int) {
	t.Helper()
	told := map[string]acknowledged{}
	answers := 0
	for _, p := range c.parts {
		for _, a := range p.acknowledgements(t) {
			answers++
			before, twice := told[a.Job+" "+a.Key]
			if repeat := a.Assignment != "" && a.Assignment == before.Assignment; twice && !repeat {
				t.Errorf("item %s of job %s: two confirmed results, of %s and %s", a.Key, a.Job, before.Agent, a.Agent)
			}
			told[a.Job+" "+a.Key] = a
		}
	}
	t.Logf("%d confirmed results printed by agents", answers)
	if answers < len(ids)*items/10 { // results of pushes are not confirmed
		t.Errorf("got %d confirmed results of %d items, want at least a tenth", answers, len(ids)*items)
	}
	verdicts := map[string]string{"integrated": "accept", "rejected": "reject"}
	for n, id := range ids {
		var j agentJob
		c.do(t, http.MethodGet, "/jobs/"+id, nil, &j)
		if j.Status != "completed" || j.Items.Integrated+j.Items.Rejected != items || j.Items.Total != items {
			t.Errorf("job %s: got %+v, want completed and %d items integrated or rejected", id, j, items)
		}
		texts := map[string]bool{}
		for _, it := range c.items(t, id) {
			texts[it.Text] = true
			want := "integrated"
			if strings.HasSuffix(it.Text, "is only a remark.") {
				want = "rejected"
			}
			if it.Status != want {
				t.Errorf("item %s of job %s, %q: got %s, want %s", it.Key, id, it.Text, it.Status, want)
			}
			if a, ok := told[id+" "+it.Key]; ok && (a.Agent != it.Agent || a.Verdict != verdicts[it.Status]) {
				t.Errorf("item %s of job %s is %s by %s; agent %s received a confirmation of %s", it.Key, id, it.Status, it.Agent, a.Agent, a.Verdict)
			}
		}
		if len(texts) != items || !texts[fmt.Sprintf("The part 0 of job %d must be there.", n)] {
			t.Errorf("job %s has %d different items, want the %d of job %d", id, len(texts), items, n)
		}
	}
}
