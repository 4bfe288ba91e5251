package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks/internal/graph"
)

var errNot = errors.New("not yet")

type Engine struct{}

func New(rdb redis.UniversalClient, log *slog.Logger) *Engine { return &Engine{} }
func (e *Engine) Close()                                      {}
func (e *Engine) Send(ctx context.Context, s *graph.Sig, o *graph.Opts) (string, error) {
	return "", errNot
}
func (e *Engine) Wait(ctx context.Context, id string) (json.RawMessage, *Failure, error) {
	return nil, nil, errNot
}
func (e *Engine) Progress(ctx context.Context, id string) (Progress, error) {
	return Progress{}, errNot
}
func (e *Engine) Pause(ctx context.Context, id string, d time.Duration) error { return errNot }
func (e *Engine) Members(ctx context.Context, id string) ([]json.RawMessage, error) {
	return nil, errNot
}
func (e *Engine) Revoke(ctx context.Context, id string) error              { return errNot }
func (e *Engine) RevokeNode(ctx context.Context, id, node string) error    { return errNot }
func (e *Engine) Nodes(ctx context.Context, id string) ([]NodeInfo, error) { return nil, errNot }
func (e *Engine) Workers(ctx context.Context) ([]WorkerInfo, error)        { return nil, errNot }
func (e *Engine) Active(ctx context.Context) ([]ActiveNode, error)         { return nil, errNot }
func (e *Engine) Due(ctx context.Context, limit int) ([]DueNode, error)    { return nil, errNot }
func (e *Engine) Queues(ctx context.Context) ([]QueueInfo, error)          { return nil, errNot }
func (e *Engine) PauseQueue(ctx context.Context, q string) error           { return errNot }
func (e *Engine) ResumeQueue(ctx context.Context, q string) error          { return errNot }
func (e *Engine) SetConcurrency(ctx context.Context, w string, n int) error {
	return errNot
}
func (e *Engine) ExpireWorkers(ctx context.Context, ws []string) error { return errNot }

type Run struct{ Info Info }

func RunFrom(ctx context.Context) *Run                            { return nil }
func (r *Run) SetProgress(done, total int)                        {}
func (r *Run) PublishKey(ctx context.Context, name, value string) {}

type WorkerConfig struct {
	Queues                                      map[string]int
	Strict                                      bool
	Concurrency, MaxConcurrency, MaxResult, PID int
	Grace                                       time.Duration
	Name                                        string
	Logger                                      *slog.Logger
	Ready                                       func()
}
type Worker struct{}

func NewWorker(e *Engine, hs map[string]*Handler, cfg WorkerConfig) *Worker { return &Worker{} }
func (w *Worker) Name() string                                              { return "" }
func (w *Worker) Run(ctx context.Context) error                             { return errNot }
func (w *Worker) Kill()                                                     {}
func (w *Worker) SetConcurrency(n int)                                      {}
