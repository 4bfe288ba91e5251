package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/internal/clip"
	"muster/internal/limit"
	"muster/internal/logctx"
	"muster/internal/retryafter"
	"muster/internal/webhook"
	"muster/jobs"
)

const (
	maxAnswer  = 16 << 20
	maxRest    = time.Hour   // maximum pause that an agent may request
	brokenRest = time.Second // pause after a failed connection; the breaker extends it
)

// newTransport returns the transport of requests to agents.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// response is the response of an agent to a push.
type response struct {
	outcome string // one of pushOutcomes
	reply   Reply
	wait    time.Duration // requested pause, if busy
	reached bool          // the agent received the request before its connection failed, if unreachable
	err     error         // nil if completed or accepted
}

// Outcomes of pushes.
const (
	pushCompleted   = "completed"   // 200 with a result
	pushRefused     = "refused"     // 200 with an error
	pushAccepted    = "accepted"    // 202
	pushBusy        = "busy"        // 429 or 503 with Retry-After
	pushFailed      = "failed"      // another status, or an invalid result
	pushUnreachable = "unreachable" // the connection failed
	pushEnded       = "ended"       // the assignment or this process ended first
)

var pushOutcomes = []string{pushCompleted, pushRefused, pushAccepted, pushBusy, pushFailed, pushUnreachable, pushEnded}

// push sends an assignment to its agent and settles it according to the response.
func (s *Service) push(ctx context.Context, h *assigned, permit limit.Permit) {
	rec, err := s.readRecord(ctx, h.Agent)
	if errors.Is(err, ErrNoAgent) {
		s.settle(ctx, h, nil, func(h *assigned) error { return s.fail(ctx, h, err, 0, false, endMoved) })
		return
	}
	if err == nil {
		err = s.checkPush(ctx, h.Agent, rec)
	}
	answer := response{outcome: pushUnreachable, err: err}
	if err == nil {
		answer = s.post(ctx, rec, h.Assignment)
		if err = s.checkPush(ctx, h.Agent, rec); errors.Is(err, errNoPush) && ctx.Err() == nil { // revoked while it worked
			answer = response{outcome: pushUnreachable, err: err}
		}
	}
	if ctx.Err() != nil && answer.outcome != pushCompleted && answer.outcome != pushRefused {
		answer.outcome = pushEnded
	}
	s.counts.pushes.WithLabelValues(answer.outcome).Inc()
	s.reportPush(ctx, permit, answer, errors.Is(context.Cause(ctx), errDeadline))
	if answer.outcome == pushEnded {
		s.settleInterrupted(ctx, h)
		return
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	s.settle(ctx, h, answer.reply.Usage, func(h *assigned) error { return s.settleResponse(ctx, h, answer) })
}

// reportPush reports the outcome of a request to the breaker of an agent.
func (s *Service) reportPush(ctx context.Context, permit limit.Permit, r response, late bool) {
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	var err error
	switch r.outcome {
	case pushCompleted, pushRefused, pushAccepted:
		err = permit.Success(ctx)
	case pushFailed, pushUnreachable:
		err = permit.Failure(ctx, clip.Clean(r.err.Error(), 100))
	default:
		if late {
			err = permit.Failure(ctx, errDeadline.Error())
		} else {
			err = permit.Cancel(ctx)
		}
	}
	s.warn(ctx, "report to the breaker of an agent", err)
}

// settleResponse settles an assignment with the response of its agent.
func (s *Service) settleResponse(ctx context.Context, h *assigned, r response) error {
	switch r.outcome {
	case pushAccepted:
		return s.beat(ctx, h, nil) // from now on the agent extends the lease
	case pushBusy:
		s.suspend(ctx, h.Agent, r.wait)
		return s.release(ctx, h)
	case pushUnreachable:
		s.suspend(ctx, h.Agent, brokenRest)
		s.checkSoon(ctx, h.Agent)
		if r.reached {
			return s.endBroken(ctx, h, r.err)
		}
		return s.fail(ctx, h, r.err, 0, false, endMoved)
	case pushCompleted, pushRefused:
		return s.finish(ctx, h, r.reply)
	default:
		return s.fail(ctx, h, r.err, -1, true, endFailed)
	}
}

// finish ends an assignment by the reply of its agent or Go task. A reply that cannot be used is a failed attempt.
func (s *Service) finish(ctx context.Context, h *assigned, r Reply) error {
	err := checkUsage(r.Usage)
	if err == nil && r.Error != "" {
		after := time.Duration(-1)
		if d := r.After(); d != nil && *d >= 0 {
			after = min(*d, maxRetryAfter)
		}
		return s.fail(ctx, h, &failure{clip.Clean(r.Error, maxMessage), r.Permanent}, after, true, endFailed)
	}
	if err == nil {
		err = s.complete(ctx, h, r.Answer(h.Takes))
	}
	var wrong *jobs.FieldError
	if errors.As(err, &wrong) {
		return s.fail(ctx, h, fmt.Errorf("invalid result: %w", wrong), -1, true, endFailed)
	}
	return err
}

// post sends an assignment to the URL of its agent and parses the response.
func (s *Service) post(ctx context.Context, rec record, a Assignment) response {
	failed := func(err error) response { return response{outcome: pushFailed, err: err} }
	body, err := json.Marshal(a)
	if err != nil {
		return failed(fmt.Errorf("encode the assignment: %w", err))
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		sent.Store(info.Err == nil)
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rec.URL+"/assignments", bytes.NewReader(body))
	if err != nil {
		return failed(fmt.Errorf("push the assignment: %w", err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", a.ID)
	if id := logctx.Value(ctx, logctx.RequestID); id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	var secrets []string // one of the configuration may have none
	if rec.Secret != "" {
		secrets = append(secrets, rec.Secret)
	}
	if err := webhook.Sign(req.Header, a.ID, time.Now(), body, secrets...); err != nil {
		return failed(fmt.Errorf("sign the assignment: %w", err))
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return response{outcome: pushUnreachable, reached: sent.Load(), err: fmt.Errorf("agent %s: %s", rec.Name, explain(err))}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return response{outcome: pushUnreachable, reached: true, err: fmt.Errorf("agent %s: read the response: %s", rec.Name, explain(err))}
	}
	return parseResponse(rec.Name, resp, raw)
}

func parseResponse(name string, resp *http.Response, raw []byte) response {
	failed := func(format string, args ...any) response {
		return response{outcome: pushFailed, err: fmt.Errorf("agent %s: "+format, append([]any{name}, args...)...)}
	}
	status := resp.StatusCode
	wait, asked := retryafter.Parse(resp.Header.Get("Retry-After"), time.Now(), maxRest)
	switch {
	case len(raw) > maxAnswer:
		return failed("the response exceeds %d MiB", maxAnswer>>20)
	case status == http.StatusAccepted:
		return response{outcome: pushAccepted}
	case asked && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable):
		return response{outcome: pushBusy, wait: wait, err: fmt.Errorf("agent %s: HTTP %d", name, status)}
	case status != http.StatusOK:
		if len(raw) == 0 {
			return failed("HTTP %d", status)
		}
		return failed("HTTP %d: %s", status, beginning(raw))
	}
	reply, err := ParseReply(raw)
	if err != nil {
		return failed("%w", err)
	}
	if reply.Error != "" {
		return response{outcome: pushRefused, reply: reply, err: errors.New(reply.Error)}
	}
	return response{outcome: pushCompleted, reply: reply}
}

// explain returns the message of a request error without the URL, with the same terms as health checks.
func explain(err error) string {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return connectionRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "connection timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return "connection closed"
	}
	return clip.Clean(err.Error(), 200)
}

// readRecord reads the record of an agent. It returns ErrNoAgent.
func (s *Service) readRecord(ctx context.Context, id string) (record, error) {
	text, err := s.rdb.HGet(ctx, s.keys.agents(), id).Result()
	if errors.Is(err, redis.Nil) {
		return record{}, fmt.Errorf("agent %.100q: %w", id, ErrNoAgent)
	}
	if err != nil {
		return record{}, fmt.Errorf("read agent %s: %w", id, err)
	}
	rec, err := parseRecord(id, text)
	if err != nil {
		return record{}, fmt.Errorf("agent %.100q: %w (%w)", id, ErrNoAgent, err)
	}
	return rec, nil
}

// suspend suspends the assignment of work to an agent for d.
func (s *Service) suspend(ctx context.Context, id string, d time.Duration) {
	now, err := s.now(ctx)
	if err == nil {
		err = s.rdb.ZAddArgs(ctx, s.keys.free(), redis.ZAddArgs{XX: true, GT: true, Members: []redis.Z{{Score: float64(now.Add(d).UnixMilli()), Member: id}}}).Err()
	}
	s.warn(ctx, "let an agent rest", err, "agent", id)
}
