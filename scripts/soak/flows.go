//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	_ "modernc.org/sqlite" // database of the outbox

	"muster/tasks"
	taskmetrics "muster/tasks/metrics"
	"muster/tasks/outbox"
	"muster/tasks/taskstest"
)

// Environment variables of a workflow worker, which is a process of this program.
const (
	workerEnv  = "MUSTER_SOAK_WORKER_URL"
	metricsEnv = "MUSTER_SOAK_WORKER_METRICS" // listen address of its metrics
	outboxEnv  = "MUSTER_SOAK_WORKER_OUTBOX"  // database whose outbox it sends
)

// openOutbox opens the database of the senders, and creates its outbox.
func openOutbox(ctx context.Context, path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
	if err == nil {
		_, err = db.ExecContext(ctx, outbox.Schema(outbox.SQLite))
	}
	return db, err
}

// runWorker implements the main function of a workflow worker. It serves metrics, and sends what is in the outbox.
func runWorker(ctx context.Context, url, metrics, path string) error {
	c, err := tasks.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	db, err := openOutbox(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	relay, err := outbox.NewRelay(outbox.Config{DB: db, Dialect: outbox.SQLite, Client: c})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: metrics, Handler: taskmetrics.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.ListenAndServe() }() // until Close; the report shows missing samples
	defer server.Close()
	mux := tasks.NewMux()
	taskstest.HandleRandom(mux)
	tasks.Handle(mux, tick, func(ctx context.Context, _ int) (struct{}, error) {
		return struct{}{}, c.Redis().SAdd(ctx, ticksKey, tasks.InfoFrom(ctx).Tick.UnixMilli()).Err()
	})
	w, err := tasks.NewWorker(c, mux, tasks.WorkerConfig{Concurrency: 4, Grace: 5 * time.Second})
	if err != nil {
		return err
	}
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(ctx) }()
	return errors.Join(w.Run(ctx), <-relayed)
}

// tick is the task of the schedule, whose ticks are counted in a set.
var tick = tasks.New[int, struct{}]("soak.tick", tasks.MaxRetry(100), tasks.ConstantBackoff(time.Second))

const (
	tickName = "soak-tick"
	ticksKey = "soak:ticks"
)

// auditTicks returns how many of the sent ticks have not run. A tick that is sent again keeps the number from reaching 0.
func (l *load) auditTicks(ctx context.Context) (open int, err error) {
	e, err := l.s.client.Inspect().Schedule(ctx, tickName)
	if err != nil {
		return 0, err
	}
	ran, err := l.s.client.Redis().SCard(ctx, ticksKey).Result()
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[kindTick]
	b.Sent, b.Ended = int(e.Sent), int(ran)
	return b.Sent - b.Ended, nil
}

// addToOutbox stores a workflow in the outbox of the database.
func (l *load) addToOutbox(f taskstest.Random, options ...tasks.SendOption) error {
	tx, err := l.s.outbox.BeginTx(l.ctx, nil)
	if err != nil {
		return err
	}
	_, err = outbox.Add(l.ctx, tx, tasks.Sending{Work: f, Options: options})
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
