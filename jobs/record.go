package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
)

// record is the hash of a job:
//
//	name status version seq created updated started ended (unix ms)
//	prompt                       its beginning, if it is above MaxInline; then prompt_sha256 is set and the whole has a key
//	context                      empty if it is above MaxInline; then context_sha256 is set and it has a key
//	doc priority labels after on_failure at cron parent version_of generation
//	pipeline_sha256              of the pipeline when the job was created; see pipelineKey. The field pipeline, its
//	                             JSON, is added when a record is read.
//	stuck_after timeout          ms
//	headers                      as JSON: its trace and the id of the request that created it
//	work                         hash of the request, for dedupe
//	turn                         when its work was last taken, with fractions of a ms
//	next                         of a schedule: when it creates a job
//	after:JOB                    final state of a deleted dependency
//	done:STAGE                   when a stage was completed
//	failed_stage failed_stage_error  the stage that an operator failed, and why
//	progressed futile recoveries time of the last progress; number of recoveries since; total number
//	waited stuck:PROGRESSED      when a sweep last noted that it waits, for agents or a person; that this event was added
//	endings                      the last ending of its queue that is in the events
//	error details
//	paused reopened              1 while it is paused; when it was last reopened
//	final                        stages and counts, once it has ended, as JSON
//	counted                      its items by state, as they are in the counters of all jobs; see numbers.go
type record map[string]string

// final contains the stages and counts of an ended job.
type final struct {
	Stages []Stage `json:"stages,omitempty"`
	Items  Counts  `json:"items"`
}

func (s *Service) read(ctx context.Context, id string) (record, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	r, err := s.rdb.HGetAll(ctx, recordKey(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	if r["status"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return r, s.addPipelines(ctx, r)
}

// addPipelines adds their pipelines to records. A record whose pipeline is missing was deleted meanwhile: it becomes empty, and
// the error is ErrNotFound.
func (s *Service) addPipelines(ctx context.Context, records ...record) error {
	missing := map[string]*redis.StringCmd{}
	for _, r := range records {
		if hash := r["pipeline_sha256"]; hash != "" && s.contents.get(hash) == "" {
			missing[hash] = nil
		}
	}
	if len(missing) > 0 {
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for hash := range missing {
				missing[hash] = p.HGet(ctx, pipelineKey(hash), "json")
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read the pipelines of jobs: %w", err)
		}
	}
	var lost error
	for _, r := range records {
		hash := r["pipeline_sha256"]
		if hash == "" {
			continue
		}
		text := s.contents.get(hash)
		if text == "" {
			if text = missing[hash].Val(); text == "" {
				lost = ErrNotFound
				clear(r)
				continue
			}
			s.contents.put(hash, text)
		}
		r["pipeline"] = text
	}
	return lost
}

func (r record) status() Status { return Status(r["status"]) }

func (r record) int(field string) int64 {
	n, _ := strconv.ParseInt(r[field], 10, 64)
	return n
}

func (r record) time(field string) time.Time {
	if ms := r.int(field); ms != 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

func (r record) millis(field string) time.Duration {
	return time.Duration(r.int(field)) * time.Millisecond
}

func (r record) list(field string) []string {
	var list []string
	_ = json.Unmarshal([]byte(r[field]), &list)
	return list
}

// parsed remembers pipelines by their JSON, which most jobs share.
var parsed cache[*pipeline.Pipeline]

// pipeline returns the pipeline of the job, or nil if it has none. It must not be changed: others have it, too.
func (r record) pipeline() (*pipeline.Pipeline, error) {
	if r["pipeline"] == "" {
		return nil, nil
	}
	if p := parsed.get(r["pipeline"]); p != nil {
		return p, nil
	}
	p := &pipeline.Pipeline{}
	if err := json.Unmarshal([]byte(r["pipeline"]), p); err != nil {
		return nil, fmt.Errorf("read the pipeline of a job: %w", err)
	}
	parsed.put(r["pipeline"], p)
	return p, nil
}

func (r record) headers() map[string]string {
	var h map[string]string
	_ = json.Unmarshal([]byte(r["headers"]), &h)
	return h
}

func (r record) document() *Document {
	if r["doc"] == "" {
		return nil
	}
	d := &Document{}
	if json.Unmarshal([]byte(r["doc"]), d) != nil {
		return nil
	}
	return d
}

// job returns the part of a job that is in its record.
func (r record) job(id string) (Job, error) {
	p, err := r.pipeline()
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	j := Job{
		ID: id, Kind: KindPipeline, Name: r["name"], Status: r.status(), Version: r.int("version"),
		Prompt: r["prompt"], Document: r.document(), Priority: int(r.int("priority")), Labels: r.list("labels"),
		CreatedAt: r.time("created"), UpdatedAt: r.time("updated"), StartedAt: r.time("started"), CompletedAt: r.time("ended"),
		ErrorMessage: r["error"], After: r.list("after"), OnFailure: r["on_failure"], At: r.time("at"), Cron: r["cron"],
		Parent: r["parent"], VersionOf: r["version_of"], Generation: int(max(1, r.int("generation"))), Recoveries: int(r.int("recoveries")), Paused: r["paused"] != "",
		StuckAfter: r.millis("stuck_after"), Timeout: r.millis("timeout"), Pipeline: p,
	}
	if r["context"] != "" {
		j.Context = json.RawMessage(r["context"])
	}
	if r["details"] != "" {
		j.ErrorDetails = json.RawMessage(r["details"])
	}
	return j, nil
}

// addLarge adds the prompt and the context from their separate keys to the record of a job.
func (s *Service) addLarge(ctx context.Context, id string, r record) error {
	for field, key := range map[string]string{"prompt": promptKey(id), "context": largeContextKey(id)} {
		if r[field+"_sha256"] == "" {
			continue
		}
		text, err := s.rdb.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			return fmt.Errorf("%w: %s", ErrNotFound, id)
		}
		if err != nil {
			return fmt.Errorf("read the %s of job %s: %w", field, id, err)
		}
		r[field] = text
	}
	return nil
}

// checkID rejects invalid job ids.
func checkID(id string) error {
	if id == "" || len(id) > 100 {
		return bad("job_id", "%.40q is not the id of a job", id)
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return bad("job_id", "%.40q is not the id of a job", id)
		}
	}
	return nil
}
