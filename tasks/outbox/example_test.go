package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	_ "modernc.org/sqlite"

	"muster/internal/redistest"
	"muster/tasks"
	"muster/tasks/outbox"
)

var Ship = tasks.New[string, string]("orders.ship")

// An order is stored and its workflow sent, or neither.
func Example() {
	rdb, end := redistest.Example() // a program calls tasks.Connect
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := tasks.NewClient(rdb)
	shipped := make(chan string)
	mux := tasks.NewMux()
	tasks.Handle(mux, Ship, func(_ context.Context, item string) (string, error) {
		shipped <- item
		return item, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	must(err)

	db, err := sql.Open("sqlite", ":memory:")
	must(err)
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (item TEXT UNIQUE);"+outbox.Schema(outbox.SQLite)) // a migration
	must(err)
	relay, err := outbox.NewRelay(outbox.Config{DB: db, Dialect: outbox.SQLite, Client: client})
	must(err)
	stopped := make(chan error)
	go func() { stopped <- relay.Run(ctx) }()

	order := func(item string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
		if _, err := outbox.Add(ctx, tx, tasks.Sending{Work: Ship.S(item), Options: []tasks.SendOption{tasks.Retention(time.Hour)}}); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", item); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		relay.Wake()
		return nil
	}
	for _, item := range []string{"lamp", "lamp", "chair"} {
		if err := order(item); err != nil {
			fmt.Println(item, "was not ordered")
			continue
		}
		fmt.Println("shipped:", <-shipped)
	}
	cancel()
	must(<-stopped)
	must(worker.Stop())
	must(client.Close())
	must(db.Close())
	// Output:
	// shipped: lamp
	// lamp was not ordered
	// shipped: chair
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
