package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/clip"
	"muster/internal/tracing"
	"muster/tasks"
	"muster/tasks/tasktype"
)

// taskPrefix is in front of the name of a Go task where a role can be.
const taskPrefix = "task:"

// keepTask is how long the workflow of a Go task is kept after its end.
const keepTask = time.Hour

// liveTask is a Go task that live workers have a handler for.
type liveTask struct {
	name    string
	queue   string // that such a worker takes tasks from
	workers int
}

// taskList remembers the live tasks for a while.
type taskList struct {
	mu   sync.Mutex // guards the rest
	read time.Time
	list []liveTask
}

// liveTasks lists the Go tasks that stages may use and a live worker has a handler for.
func (s *Service) liveTasks(ctx context.Context) ([]liveTask, error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if time.Since(s.live.read) < s.cfg.Tick {
		return s.live.list, nil
	}
	wanted := map[string]bool{}
	if s.cfg.TaskRoles != nil {
		names, err := s.cfg.TaskRoles(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the Go tasks of pipelines: %w", err)
		}
		for _, name := range names {
			wanted[strings.TrimPrefix(name, taskPrefix)] = true
		}
		if len(wanted) == 0 {
			s.live.list, s.live.read = nil, time.Now()
			return nil, nil
		}
	}
	workers, err := s.cfg.Client.Inspect().Workers(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the workers: %w", err)
	}
	found := map[string]liveTask{}
	for _, w := range workers {
		queue := "default"
		if _, ok := w.Queues[queue]; !ok {
			if names := slices.Sorted(maps.Keys(w.Queues)); len(names) > 0 {
				queue = names[0]
			}
		}
		for _, name := range w.Tasks {
			if s.cfg.TaskRoles != nil && !wanted[name] {
				continue
			}
			t := found[name]
			t.name, t.workers = name, t.workers+1
			if t.queue == "" || queue == "default" {
				t.queue = queue
			}
			found[name] = t
		}
	}
	list := slices.SortedFunc(maps.Values(found), func(a, b liveTask) int { return cmp.Compare(a.name, b.name) })
	s.live.list, s.live.read = list, time.Now()
	return list, nil
}

// runTask sends the Go task of an assignment, waits for it, and settles the assignment by its result. A task that was
// sent before, by a process that has died, is waited for.
func (s *Service) runTask(ctx context.Context, h *assigned) {
	raw, err := s.sendTask(ctx, h)
	if s.settleInterrupted(ctx, h) {
		if cause := context.Cause(ctx); errors.Is(cause, errDeadline) || errors.Is(cause, errGone) {
			last, cancel := cleanupContext(ctx)
			defer cancel()
			if err := s.cfg.Client.Workflow(runID(h)).Revoke(last); !errors.Is(err, tasks.ErrNotFound) {
				s.warn(last, "revoke a Go task", err, "assignment", h.ID)
			}
		}
		return
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	var failed *tasks.Failure
	reply := Reply{}
	switch {
	case errors.As(err, &failed) && failed.Code != tasktype.CodeUnregistered:
		reply.Error = clip.Clean(failed.Error(), maxMessage)
	case err != nil: // it did not run, or it is not known
		s.warn(ctx, "run a Go task", err, "task", h.Role, "assignment", h.ID)
		s.settle(ctx, h, nil, func(h *assigned) error { return s.fail(ctx, h, err, -1, false, endFailed) })
		return
	default:
		if text := strings.TrimSpace(string(raw)); text != "" && text != "null" {
			if reply, err = ParseReply(raw); err != nil {
				reply.Error = fmt.Sprintf("task %s: %v", strings.TrimPrefix(h.Role, taskPrefix), err)
			}
		}
	}
	s.settle(ctx, h, reply.Usage, func(h *assigned) error { return s.finish(ctx, h, reply) })
}

// runID returns the id of the workflow of an assignment. An attempt that another process has left is continued.
func runID(h *assigned) string {
	return fmt.Sprintf("%s-%d-%d", h.IdempotencyKey, h.Retried, h.Attempt)
}

// WorkflowLabel is the label with the ID of the job of a workflow that runs the Go task of a stage.
const WorkflowLabel = "muster.job"

// sendTask sends the Go task of an assignment and waits for its value.
func (s *Service) sendTask(ctx context.Context, h *assigned) (json.RawMessage, error) {
	name := strings.TrimPrefix(h.Role, taskPrefix)
	whole := h.Assignment
	if whole.PromptSHA256 != "" || whole.ContextSHA256 != "" { // a Go task has no key for the API
		prompt, context, err := s.cfg.Jobs.Input(ctx, h.JobID)
		if err != nil {
			return nil, err
		}
		whole.Prompt, whole.PromptSHA256, whole.Context, whole.ContextSHA256 = prompt, "", context, ""
	}
	input, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	queue := "default"
	live, err := s.liveTasks(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(live, func(t liveTask) bool { return t.name == name }); i >= 0 {
		queue = live[i].queue
	}
	task := tasks.New[json.RawMessage, json.RawMessage](name)
	sent, err := task.S(input).Send(ctx, s.cfg.Client, tasks.ID(runID(h)),
		tasks.Name(h.Stage+" "+h.JobID), tasks.Queue(queue), tasks.Retention(keepTask), tasks.Labels(map[string]string{WorkflowLabel: h.JobID}), tasks.Headers(tracing.Headers(ctx)),
		tasks.Timeout(max(h.Deadline.Sub(h.Begun), time.Second)))
	if err != nil && !errors.Is(err, tasks.ErrDuplicate) {
		return nil, err
	}
	return sent.Wait(ctx)
}
