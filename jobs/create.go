package jobs

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/internal/clip"
	"muster/internal/logctx"
	"muster/internal/tracing"
	"muster/jobs/pipeline"
)

// Limits of a request.
const (
	MaxPrompt    = 1 << 20 // bytes
	MaxContext   = 1 << 20 // bytes of JSON
	MaxDepth     = 100     // levels of JSON
	MaxPriority  = 100
	MaxLabels    = 20
	MaxAfter     = 100
	MaxLabel     = 100 // bytes
	minStuckTime = time.Second
)

// Create creates a job and sends it. It reports whether the job is new: a request with a known IdempotencyKey, or one
// for the same work with DedupeJoin, returns the job that there is. Errors are a *FieldError, ErrMismatch, ErrExists,
// or of Redis: then call it again with the same IdempotencyKey.
func (s *Service) Create(ctx context.Context, req Request) (Job, bool, error) {
	return s.create(ctx, newID(), req)
}

func (s *Service) create(ctx context.Context, id string, req Request) (Job, bool, error) {
	ctx = logctx.With(ctx, logctx.Job, id)
	p, err := s.check(&req)
	if err != nil {
		return Job{}, false, err
	}
	generation := int64(1)
	if req.VersionOf != "" {
		before, err := s.read(ctx, req.VersionOf)
		if errors.Is(err, ErrNotFound) {
			return Job{}, false, bad("version_of", "job %s not found", req.VersionOf)
		}
		if err != nil {
			return Job{}, false, err
		}
		generation = max(1, before.int("generation")) + 1
		req.Dedupe = DedupeAllow
	}
	reply, err := s.put(ctx, id, req, p, generation)
	if err != nil {
		return Job{}, false, err
	}
	switch answer, other := toString(reply[0]), toString(reply[1]); answer {
	case "created":
	case "repeat", "joined":
		if other == id {
			break // the reply to the first call was lost, and the Redis client repeated it
		}
		j, err := s.Get(ctx, other)
		return j, false, err
	case "exists":
		return Job{}, false, fmt.Errorf("%w: %s", ErrExists, other)
	case "mismatch":
		return Job{}, false, ErrMismatch
	default:
		return Job{}, false, bad("after", "job %s not found", other)
	}
	if err := s.checkDocument(ctx, id, req.Document); err != nil {
		return Job{}, false, err
	}
	j, err := s.Get(ctx, id)
	if s.running.Load() { // else a process in which Run runs starts it
		if err := s.advance(ctx, id); err != nil {
			s.cfg.Logger.WarnContext(ctx, "the job starts with the next sweep", "job", id, "err", err)
		}
	}
	return j, true, err
}

// checkDocument deletes a new job whose document was removed before the job referred to it.
func (s *Service) checkDocument(ctx context.Context, id string, d *Document) error {
	if d == nil || s.cfg.Documents == nil {
		return nil
	}
	f, err := s.cfg.Documents.Open(d.Hash)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Logger.WarnContext(ctx, "the document of a new job was not looked for", "job", id, "err", err)
		return nil
	}
	r, err := s.read(ctx, id)
	if err == nil {
		err = s.end(ctx, id, r, Failed, "job.failed", "its document is gone")
	}
	if err == nil {
		err = s.Delete(ctx, id)
	}
	gone := bad("document", "document %.80q is not stored any more; send it again", d.Name)
	return errors.Join(gone, err)
}

// promptBeginning is how many bytes of a large prompt are in the record of a job.
const promptBeginning = 200

// put stores a new job.
func (s *Service) put(ctx context.Context, id string, req Request, p *pipeline.Pipeline, generation int64) ([]any, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("create a job: %w", err)
	}
	prompt, largePrompt, promptHash := req.Prompt, "", ""
	if len(req.Prompt) > MaxInline {
		prompt, largePrompt, promptHash = clip.Bytes(req.Prompt, promptBeginning)+"…", req.Prompt, digest(req.Prompt)
	}
	context, largeContext, contextHash := splitContext(req.Context)
	planHash, work := digest(string(raw)), workOf(req, string(raw))
	fields := []any{
		"name", p.Name, "status", string(Created), "prompt", prompt, "context", context,
		"priority", req.Priority, "on_failure", req.OnFailure, "generation", generation, "pipeline_sha256", planHash,
		"stuck_after", req.StuckAfter.Milliseconds(), "timeout", p.Timeout.Milliseconds(), "work", work,
	}
	optional := func(name, value string) {
		if value != "" {
			fields = append(fields, name, value)
		}
	}
	optional("prompt_sha256", promptHash)
	optional("context_sha256", contextHash)
	optional("labels", encode(req.Labels))
	optional("after", encode(req.After))
	optional("headers", encode(tracing.Headers(ctx)))
	optional("version_of", req.VersionOf)
	if !req.At.IsZero() {
		fields = append(fields, "at", req.At.UnixMilli())
	}
	idem, doc := recordKey(id), recordKey(id)
	if req.IdempotencyKey != "" {
		idem = idempotencyKey(req.IdempotencyKey)
	}
	if req.Document != nil {
		doc = documentKey(req.Document.Hash)
		optional("doc", encode(req.Document))
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	first := now
	if s.running.Load() {
		first = now.Add(s.limits.Load().CheckEvery) // until then, Create has started it
	}
	if req.At.After(now) {
		first = req.At
	}
	args := []any{id, prefix + "j:", requestHash(req, string(raw)), req.Dedupe, prefix + "after:", first.UnixMilli(), `{"name":` + encode(p.Name) + `}`, largePrompt, largeContext, raw, len(req.After)}
	for _, other := range req.After {
		args = append(args, other)
	}
	keys := append([]string{recordKey(id)}, s.eventKeys(id)...)
	keys = append(keys, seqKey, dayKey(now), todoKey, idem, dedupeKey(work), doc, promptKey(id), largeContextKey(id), pipelineKey(planHash))
	keys = append(keys, indexes(p, p.Name, Created, req.Labels, req.Context)...)
	return s.run(ctx, "create a job", "create", keys, append(args, fields...)...)
}

// splitContext returns the context for the record of a job and, if it is above MaxInline, the one for its own key and its hash.
func splitContext(context json.RawMessage) (inline, large, hash string) {
	if len(context) <= MaxInline {
		return string(context), "", ""
	}
	return "", string(context), digest(string(context))
}

// indexes are the keys of the indexes that a job is in.
func indexes(p *pipeline.Pipeline, name string, status Status, labels []string, context json.RawMessage) []string {
	return append([]string{allKey, nameKey(name), statusKey(status)}, soft(p, labels, context)...)
}

// soft are the keys of the indexes that an edit can change.
func soft(p *pipeline.Pipeline, labels []string, context json.RawMessage) []string {
	var keys []string
	for _, label := range labels {
		keys = append(keys, labelKey(label))
	}
	if len(p.Context) == 0 || len(context) == 0 {
		return keys
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(context, &values) != nil {
		return keys
	}
	declared := p.Context
	if slices.Contains(declared, pipeline.AnyContext) {
		declared = slices.Sorted(maps.Keys(values))
		declared = declared[:min(len(declared), maxContextKeys)]
	}
	for _, key := range declared {
		if value, ok := values[key]; ok {
			keys = append(keys, contextKey(key, plainValue(value)))
		}
	}
	return keys
}

// maxContextKeys is how many keys of a context are indexed for a pipeline that declares all.
const maxContextKeys = 50

// plainValue is how a value of the context is written in a filter: a string as it is, anything else as JSON.
func plainValue(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// check fills in the defaults of a request, and returns its pipeline or a *FieldError.
func (s *Service) check(req *Request) (*pipeline.Pipeline, error) {
	if strings.TrimSpace(req.Prompt) == "" {
		return nil, bad("prompt", "must not be empty")
	}
	if err := text("prompt", req.Prompt, MaxPrompt); err != nil {
		return nil, err
	}
	if req.Pipeline == "" {
		req.Pipeline = pipeline.Default
	}
	if s.cfg.Pipelines == nil {
		return nil, errors.New("create a job: no pipelines are configured")
	}
	known, err := s.cfg.Pipelines(req.Pipeline)
	if err != nil {
		return nil, bad("pipeline", "%v", err)
	}
	p := *known
	if p.Timeout <= 0 {
		p.Timeout = s.limits.Load().Timeout
	}
	if req.Context, err = canonical("context", req.Context, MaxContext); err != nil {
		return nil, err
	}
	if req.StuckAfter == 0 {
		req.StuckAfter = p.StuckAfter
	}
	if req.StuckAfter == 0 {
		req.StuckAfter = s.limits.Load().StuckAfter
	}
	return &p, checkRest(s.limits.Load().Dedupe, req)
}

func checkRest(dedupe string, req *Request) error {
	if req.Priority < -MaxPriority || req.Priority > MaxPriority {
		return bad("priority", "%d is not within ±%d", req.Priority, MaxPriority)
	}
	if err := checkLabels(req.Labels); err != nil {
		return err
	}
	if len(req.After) > MaxAfter {
		return bad("after", "%d jobs; at most %d are allowed", len(req.After), MaxAfter)
	}
	for _, other := range req.After {
		if checkID(other) != nil {
			return bad("after", "%.40q is not the id of a job", other)
		}
	}
	switch req.OnFailure {
	case "":
		req.OnFailure = OnFailureCancel
	case OnFailureCancel, OnFailureRun:
	default:
		return bad("on_failure", "%.20q is not cancel or run", req.OnFailure)
	}
	switch req.Dedupe {
	case "":
		req.Dedupe = dedupe
	case DedupeAllow, DedupeJoin, DedupeReject:
	default:
		return bad("dedupe", "%.20q is not allow, join or reject", req.Dedupe)
	}
	if req.StuckAfter < minStuckTime || req.StuckAfter > 168*time.Hour {
		return bad("stuck_after", "%v is not within 1s and 168h", req.StuckAfter)
	}
	if len(req.IdempotencyKey) > 200 {
		return bad("Idempotency-Key", "has %d bytes; at most 200 are allowed", len(req.IdempotencyKey))
	}
	return nil
}

func checkLabels(labels []string) error {
	if len(labels) > MaxLabels {
		return bad("labels", "%d labels; at most %d are allowed", len(labels), MaxLabels)
	}
	for _, l := range labels {
		if l == "" || strings.ContainsFunc(l, unicode.IsControl) {
			return bad("labels", "%.40q is not a label", l)
		}
		if err := text("labels", l, MaxLabel); err != nil {
			return err
		}
	}
	return nil
}

// text refuses text that is too long, or that Redis, JSON or a terminal cannot carry.
func text(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return bad(field, "has %d bytes; at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		return bad(field, "is not valid UTF-8")
	case strings.ContainsRune(s, 0):
		return bad(field, "has a NUL character")
	}
	return nil
}

// canonical returns a JSON object with sorted keys and without white space.
func canonical(field string, raw json.RawMessage, limit int) (json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return json.RawMessage("{}"), nil
	}
	if err := CheckJSON(field, raw, limit); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var object map[string]any
	if err := dec.Decode(&object); err != nil || object == nil {
		return nil, bad(field, "is not a JSON object")
	}
	out, err := json.Marshal(object)
	if err != nil {
		return nil, bad(field, "cannot be written as JSON")
	}
	return out, nil
}

// CheckJSON returns a *FieldError if raw is not JSON, too long, or nested too deeply.
func CheckJSON(field string, raw []byte, limit int) error {
	if len(raw) > limit {
		return bad(field, "has %d bytes; at most %d are allowed", len(raw), limit)
	}
	if !utf8.Valid(raw) {
		return bad(field, "is not valid UTF-8")
	}
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return bad(field, "is nested more than %d levels deep", MaxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if !json.Valid(raw) {
		return bad(field, "is not JSON")
	}
	return nil
}

// workOf returns a hash of the work of a request: the same prompt, document, context and pipeline, by its content, are the
// same work.
func workOf(req Request, pipeline string) string {
	doc := ""
	if req.Document != nil {
		doc = req.Document.Hash
	}
	return hash(pipeline, req.Prompt, doc, string(req.Context))
}

// requestHash is the hash of a whole request.
func requestHash(req Request, pipeline string) string {
	at := ""
	if !req.At.IsZero() {
		at = req.At.UTC().Format(time.RFC3339Nano)
	}
	return hash(workOf(req, pipeline), strconv.Itoa(req.Priority), encode(req.Labels), encode(req.After), req.OnFailure, at,
		req.StuckAfter.String(), req.VersionOf, req.Dedupe)
}

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// encode returns v as JSON, or "" for an empty list.
func encode(v any) string {
	if list, ok := v.([]string); ok && len(list) == 0 {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(raw)
}

// newID returns a random UUID of version 4.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return uuid(b, 4)
}

func uuid(b [16]byte, version byte) string {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
