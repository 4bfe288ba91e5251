// Package agents_test runs the agents of this directory against a fake API.
package agents_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/testutil"
)

const (
	document = "Invoices must be kept for ten years. Hello there.\n\n- Personal data shall be erased on request.\n"
	secret   = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	maxLines = 60 // of an agent in one file
)

// validators are the polling agents of the role validator.
var validators = [][]string{{"python3", "validator.py"}, {"node", "validator.js"}}

func item(n int, text string) map[string]any {
	return map[string]any{
		"id": fmt.Sprint("a", n), "fence": 7, "takes": "item", "stage": "validate", "idempotency_key": fmt.Sprint("idem", n),
		"job": map[string]any{"id": "job-1", "prompt": "p"}, "item": map[string]any{"key": fmt.Sprint("k", n), "text": text},
	}
}

// start starts an agent. stop interrupts it and fails the test if it exits with an error.
func start(t *testing.T, env []string, program ...string) (out *testutil.Output, stop func(os.Signal)) {
	t.Helper()
	path, err := exec.LookPath(program[0])
	if err != nil {
		t.Skipf("NOT COVERED: no %s to run %s (%v)", program[0], strings.Join(program[1:], " "), err)
	}
	cmd := exec.Command(path, program[1:]...)
	out = &testutil.Output{}
	var stderr testutil.Output
	cmd.Stdout, cmd.Stderr = out, &stderr
	cmd.Env = append(os.Environ(), append(env, "NO_PROXY=*", "PYTHONDONTWRITEBYTECODE=1")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var once sync.Once
	stop = func(how os.Signal) {
		once.Do(func() {
			_ = cmd.Process.Signal(how)
			select {
			case err := <-ended:
				if err != nil && how != os.Kill {
					t.Errorf("%v after %v: got %v, want no error", program, how, err)
				}
			case <-time.After(time.Minute):
				_ = cmd.Process.Kill()
				t.Errorf("%v still runs a minute after %v", program, how)
			}
		})
	}
	t.Cleanup(func() {
		stop(os.Kill)
		if t.Failed() {
			t.Logf("%v\nstdout:\n%s\nstderr:\n%s", program, out, &stderr)
		}
	})
	return out, stop
}

func each(t *testing.T, programs [][]string, do func(t *testing.T, program []string)) {
	for _, program := range programs {
		t.Run(program[1], func(t *testing.T) {
			t.Parallel()
			do(t, program)
		})
	}
}

func TestAgentsAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"creator.py", "validator.py", "validator.js"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "\n"); got > maxLines {
			t.Errorf("%s: got %d lines, want at most %d", name, got, maxLines)
		}
	}
}

func TestValidatorsJudgeAndLabelItems(t *testing.T) {
	t.Parallel()
	each(t, validators, func(t *testing.T, program []string) {
		api := newFake(t, item(1, "Personal data must be erased."), item(2, "Hello."), item(3, "Invoices shall be archived."))
		api.set(func(f *fake) { f.away = 1 }) // the agent retries
		out, stop := start(t, []string{"MUSTER_API=" + api.url, "AGENT_NAME=v"}, program...)
		testutil.Eventually(t, "three results", func() bool { return strings.Count(out.String(), "\n") == 3 })
		stop(syscall.SIGTERM)

		got := api.seen(http.MethodPost, "/complete")
		if len(got) != 3 {
			t.Fatalf("got %d completions, want 3: %v", len(got), got)
		}
		want := []string{
			"map[agent:agent-1 fence:7 item:map[external_id:req-idem1 labels:map[gdpr:true gobd:false]] usage:map[requests:1 tokens:5] verdict:accept]",
			"map[agent:agent-1 fence:7 reason:no requirement: none of must, shall, should, may not, require usage:map[requests:1 tokens:1] verdict:reject]",
			"map[agent:agent-1 fence:7 item:map[external_id:req-idem3 labels:map[gdpr:false gobd:true]] usage:map[requests:1 tokens:4] verdict:accept]",
		}
		for i, c := range got {
			if path := fmt.Sprintf("/v1/assignments/a%d/complete", i+1); c.path != path || fmt.Sprint(c.body) != want[i] {
				t.Errorf("got %s %v, want %s %s", c.path, c.body, path, want[i])
			}
		}
		if got := api.seen(http.MethodPost, "/v1/agents"); len(got) != 2 || fmt.Sprint(got[1].body) != "map[name:v roles:[validator]]" {
			t.Errorf("got registrations %v, want one that was refused and one", got)
		}
		if got := api.seen(http.MethodDelete, "/v1/agents/"+agentID); len(got) != 1 {
			t.Errorf("got %d removals at the end, want 1", len(got))
		}
	})
}

func TestValidatorsDropWhatIsNoLongerTheirs(t *testing.T) {
	t.Parallel()
	each(t, validators, func(t *testing.T, program []string) {
		api := newFake(t, item(1, "It must."), item(2, "It must."))
		api.respondWith(func(c call) (int, string) {
			if strings.HasPrefix(c.path, "/v1/assignments/a1/") {
				return http.StatusConflict, `{"status":409}`
			}
			return 0, ""
		})
		out, stop := start(t, []string{"MUSTER_API=" + api.url}, program...)
		testutil.Eventually(t, "the second result", func() bool { return strings.Contains(out.String(), "k2") })
		stop(syscall.SIGINT)
		if got := api.seen(http.MethodPost, "a1/complete"); len(got) != 1 || strings.Contains(out.String(), "k1") {
			t.Errorf("got %d completions of the first and the output %s, want 1 and nothing about it", len(got), out)
		}
		if got := api.seen(http.MethodPost, "/fail"); len(got) != 0 {
			t.Errorf("got %v, want no failure", got)
		}
	})
}

func TestValidatorsFailWhatIsRefused(t *testing.T) {
	t.Parallel()
	each(t, validators, func(t *testing.T, program []string) {
		api := newFake(t, item(1, "It must."))
		api.respondWith(func(c call) (int, string) {
			if strings.HasSuffix(c.path, "/complete") {
				return http.StatusBadRequest, `{"status":400}`
			}
			return 0, ""
		})
		_, stop := start(t, []string{"MUSTER_API=" + api.url}, program...)
		testutil.Eventually(t, "a failure", func() bool { return len(api.seen(http.MethodPost, "a1/fail")) == 1 })
		stop(syscall.SIGTERM)
		if got := api.seen(http.MethodPost, "a1/fail")[0].body; got["error"] == "" || fmt.Sprint(got["fence"]) != "7" {
			t.Errorf("got %v, want an error and the fence", got)
		}
	})
}

func TestAgentsRegisterAgainWhenTheyAreForgotten(t *testing.T) {
	t.Parallel()
	each(t, append(validators, []string{"python3", "creator.py"}), func(t *testing.T, program []string) {
		api := newFake(t)
		api.respondWith(func(c call) (int, string) {
			if strings.HasSuffix(c.path, "/lease") && len(api.seen(http.MethodPost, "/v1/agents")) == 1 {
				return http.StatusNotFound, `{"status":404}`
			}
			return 0, ""
		})
		_, stop := start(t, []string{"MUSTER_API=" + api.url}, program...)
		testutil.Eventually(t, "a second registration, and a poll", func() bool {
			return len(api.seen(http.MethodPost, "/v1/agents")) == 2 && len(api.seen(http.MethodPost, "/lease")) >= 2
		})
		stop(syscall.SIGTERM)
	})
}

func creation(withDocument bool) map[string]any {
	job := map[string]any{"id": "job-1", "prompt": "It must be fast. It should be small."}
	if withDocument {
		job["document"] = map[string]any{"name": "d.txt", "url": "/jobs/job-1/document"}
	}
	return map[string]any{"id": "a1", "fence": 7, "takes": "job", "stage": "create", "job": job}
}

func TestCreatorEmitsTheSentences(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		document bool
		want     []string
	}{
		{"of the document", true, []string{"Invoices must be kept for ten years.", "Hello there.", "Personal data shall be erased on request."}},
		{"of the prompt", false, []string{"It must be fast.", "It should be small."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := newFake(t, creation(tt.document))
			_, stop := start(t, []string{"MUSTER_API=" + api.url}, "python3", "creator.py")
			testutil.Eventually(t, "the completion", func() bool { return len(api.seen(http.MethodPost, "a1/complete")) == 1 })
			stop(syscall.SIGTERM)
			var got []string
			for _, c := range api.seen(http.MethodPost, "a1/items") {
				for _, it := range c.body["items"].([]any) {
					got = append(got, it.(map[string]any)["text"].(string))
				}
			}
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCreatorStopsWhenAHeartbeatIsRefused(t *testing.T) {
	t.Parallel()
	api := newFake(t, creation(true))
	api.set(func(f *fake) { f.lease = 0.1 })
	api.respondWith(func(c call) (int, string) {
		switch {
		case strings.HasSuffix(c.path, "/heartbeat"):
			return http.StatusConflict, "{}"
		case strings.HasSuffix(c.path, "/items"): // slow enough that a heartbeat is rejected meanwhile
			testutil.Becomes(func() bool { return len(api.seen(http.MethodPost, "/heartbeat")) > 0 })
			<-time.After(200 * time.Millisecond)
		}
		return 0, ""
	})
	_, stop := start(t, []string{"MUSTER_API=" + api.url}, "python3", "creator.py")
	testutil.Eventually(t, "another poll", func() bool { return len(api.seen(http.MethodPost, "/lease")) == 2 })
	stop(syscall.SIGTERM)
	if got := len(api.seen(http.MethodPost, "/items")); got == 3 {
		t.Errorf("got a call with items for each of %d sentences, want fewer", got)
	}
	if got := api.seen(http.MethodPost, "a1/complete"); len(got) != 0 {
		t.Errorf("got %v, want no completion", got)
	}
}

// push sends a signed assignment, as the API does.
func push(t *testing.T, url, secret, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/assignments", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("a1." + stamp + "." + body))
	req.Header.Set("webhook-id", "a1")
	req.Header.Set("webhook-timestamp", stamp)
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestGoAgentTakesWhatIsPushed(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "goagent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./goagent").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, tt := range []struct {
		name, later string
		want        int
	}{{"in the response", "", http.StatusOK}, {"in a later call", "1", http.StatusAccepted}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := newFake(t)
			url := "http://127.0.0.1:" + strconv.Itoa(testutil.FreePort(t))
			_, stop := start(t, []string{"MUSTER_API=" + api.url, "AGENT_LISTEN=" + strings.TrimPrefix(url, "http://"), "AGENT_LATER=" + tt.later}, program)
			testutil.Eventually(t, "a registration", func() bool { return len(api.seen(http.MethodPost, "/v1/agents")) == 1 })
			if got := api.seen(http.MethodPost, "/v1/agents")[0].body["url"]; got != url {
				t.Errorf("got the url %v, want %s", got, url)
			}
			testutil.Eventually(t, "its health", func() bool {
				resp, err := http.Get(url + "/health")
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
			body := `{"id":"a1","fence":7,"idempotency_key":"i","job":{"id":"job-1"},"item":{"key":"k1","text":"It must."}}`
			if got := push(t, url, secret, body); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			if got := push(t, url, "whsec_"+strings.Repeat("A", 32), body); got != http.StatusUnauthorized {
				t.Errorf("with another secret: got %d, want 401", got)
			}
			if tt.later != "" {
				testutil.Eventually(t, "the completion", func() bool { return len(api.seen(http.MethodPost, "a1/complete")) == 1 })
			}
			stop(syscall.SIGTERM)
			if got := api.seen(http.MethodDelete, "/v1/agents/"+agentID); len(got) != 1 {
				t.Errorf("got %d removals at the end, want 1", len(got))
			}
		})
	}
}
