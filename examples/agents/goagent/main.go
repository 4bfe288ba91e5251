// Command goagent is a push agent of the role validator: it serves HTTP and registers its URL, which must match the
// setting agents.allow. See ../README.md.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// An agent receives assignments as HTTP requests. It completes an assignment in its response or, if async, in a later call.
type agent struct {
	api, key, name, url string
	async               bool
	client              http.Client
	work                sync.WaitGroup // asynchronous completions

	registering sync.RWMutex // write-locked during a registration: work can arrive before its secret is stored

	mu     sync.Mutex // guards the rest
	id     string
	secret string
	last   time.Time // time of the last assignment
	job    string    // job of the last assignment
}

// An assignment contains the fields that this agent uses.
type assignment struct {
	ID             string `json:"id"`
	Fence          int64  `json:"fence"`
	IdempotencyKey string `json:"idempotency_key"`
	Job            struct {
		ID string `json:"id"`
	} `json:"job"`
	Item struct {
		Key  string `json:"key"`
		Text string `json:"text"`
	} `json:"item"`
}

// A completion is the body of a response to a push, and of the call complete, which requires agent and fence.
type completion struct {
	Agent   string         `json:"agent,omitempty"`
	Fence   int64          `json:"fence,omitempty"`
	Verdict string         `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`
	Item    map[string]any `json:"item,omitempty"`
	Usage   map[string]int `json:"usage"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(os.Getenv("AGENT_LISTEN"), "127.0.0.1:8002"))
	if err != nil {
		return err
	}
	a := &agent{
		api: cmp.Or(os.Getenv("MUSTER_API"), "http://127.0.0.1:8000"), key: os.Getenv("MUSTER_KEY"), async: os.Getenv("AGENT_LATER") != "",
		url: cmp.Or(os.Getenv("AGENT_URL"), "http://"+listener.Addr().String()), client: http.Client{Timeout: time.Minute},
	}
	a.name = cmp.Or(os.Getenv("AGENT_NAME"), "validator-"+strings.NewReplacer("http://", "", "https://", "", "/", "-").Replace(a.url))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", a.health)
	mux.HandleFunc("POST /assignments", func(w http.ResponseWriter, r *http.Request) { a.assigned(ctx, w, r) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()

	err = a.stayRegistered(ctx, failed)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(last))
	a.work.Wait()
	if a.id != "" {
		_ = a.call(last, http.MethodDelete, "/v1/agents/"+a.id, nil, nil) // other agents get its work
	}
	return err
}

// stayRegistered keeps the agent registered until ctx is cancelled or the server fails.
func (a *agent) stayRegistered(ctx context.Context, failed <-chan error) error {
	for n := 0; ; {
		err := a.register(ctx)
		wait := 15 * time.Second
		if err != nil {
			log.Print(err)
			wait = min(time.Second<<min(n, 4), wait)
			n++
		} else {
			n = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-time.After(wait - rand.N(wait/4)):
		}
	}
}

// register sends a heartbeat. It registers the agent if the API does not know it.
func (a *agent) register(ctx context.Context) error {
	a.mu.Lock()
	id := a.id
	a.mu.Unlock()
	if id != "" {
		err := a.call(ctx, http.MethodPost, "/v1/agents/"+id+"/heartbeat", struct{}{}, nil)
		if status := statusError(0); !errors.As(err, &status) || status != http.StatusNotFound {
			return err
		}
	}
	a.registering.Lock()
	defer a.registering.Unlock()
	var me struct{ ID, Secret string }
	registration := map[string]any{"name": a.name, "roles": []string{"validator"}, "capacity": 4, "url": a.url}
	if err := a.call(ctx, http.MethodPost, "/v1/agents", registration, &me); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.id, a.secret = me.ID, me.Secret
	return nil
}

// health handles health checks. Only the status code is required.
func (a *agent) health(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "healthy", "last_activity": a.last, "current_job_id": a.job})
}

// assigned handles a pushed assignment.
func (a *agent) assigned(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	a.registering.RLock()
	a.mu.Lock()
	id, secret := a.id, a.secret
	a.mu.Unlock()
	a.registering.RUnlock()
	if err := verify(secret, r.Header, body, time.Now()); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var as assignment
	if err := json.Unmarshal(body, &as); err != nil {
		http.Error(w, "invalid assignment", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	a.last, a.job = time.Now().UTC(), as.Job.ID
	a.mu.Unlock()
	result := judge(as)
	if a.async {
		result.Agent, result.Fence = id, as.Fence
		a.work.Go(func() { a.complete(ctx, as, result) })
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
}

// complete retries until the API responds. 404 and 409 mean that the assignment was reassigned or the job has ended.
func (a *agent) complete(ctx context.Context, as assignment, result completion) {
	for n := 0; ctx.Err() == nil; n++ {
		err := a.call(ctx, http.MethodPost, "/v1/assignments/"+as.ID+"/complete", result, nil)
		if err == nil {
			line, _ := json.Marshal(map[string]any{
				"job": as.Job.ID, "key": as.Item.Key, "assignment": as.ID, "agent": result.Agent, "verdict": result.Verdict,
			})
			fmt.Println(string(line))
			return
		}
		if status := statusError(0); errors.As(err, &status) && status < 500 && status != http.StatusTooManyRequests {
			log.Printf("assignment %s: %v", as.ID, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(250 * time.Millisecond << min(n, 5))):
		}
	}
}

var (
	requires = regexp.MustCompile(`(?i)\b(must|shall|should|may not|required?)\b`)
	gobd     = regexp.MustCompile(`(?i)\b(gobd|invoice|accounting|bookkeeping|retention|audit|tax)`)
	gdpr     = regexp.MustCompile(`(?i)\b(gdpr|personal|privacy|consent|data subject|erase)`)
)

// judge accepts and labels items that contain a requirement.
func judge(as assignment) completion {
	usage := map[string]int{"requests": 1, "tokens": len(strings.Fields(as.Item.Text))}
	if !requires.MatchString(as.Item.Text) {
		return completion{Verdict: "reject", Reason: "no requirement: none of must, shall, should, may not, require", Usage: usage}
	}
	labels := map[string]bool{"gobd": gobd.MatchString(as.Item.Text), "gdpr": gdpr.MatchString(as.Item.Text)}
	return completion{Verdict: "accept", Item: map[string]any{"external_id": "req-" + as.IdempotencyKey, "labels": labels}, Usage: usage}
}

// statusError is an unsuccessful status code of the API.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the API returned %d %s", int(e), http.StatusText(int(e)))
}

// call sends in as JSON and decodes the response into out, if it is not nil.
func (a *agent) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.api+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s %s: %w: %.500s", method, path, statusError(resp.StatusCode), data)
	case out == nil:
		return nil
	}
	return json.Unmarshal(data, out)
}
