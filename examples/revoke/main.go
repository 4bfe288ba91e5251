// Revoke stops a workflow: tasks that wait never run, and the contexts of running handlers end. RevokeNode stops a
// single node, and the nodes that need its value are skipped.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

var (
	Copy   = tasks.New[string, string]("backup.copy")
	Verify = tasks.New[string, string]("backup.verify")
)

func verify(_ context.Context, folder string) (string, error) { return folder + " verified", nil }

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		return err
	}
	defer client.Close()
	begun, ended := make(chan string), make(chan error)
	mux := tasks.NewMux()
	tasks.Handle(mux, Verify, verify)
	tasks.Handle(mux, Copy, func(ctx context.Context, folder string) (string, error) {
		begun <- tasks.InfoFrom(ctx).Node
		<-ctx.Done() // a long copy, which ends with its context
		ended <- context.Cause(ctx)
		return "", ctx.Err()
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	run, err := tasks.Chain(Copy.S("films"), Verify).Send(ctx, client)
	if err != nil {
		return err
	}
	<-begun
	if err := run.Revoke(ctx); err != nil {
		return err
	}
	fmt.Println("the copy ends:", <-ended)
	_, err = run.Wait(ctx)
	fmt.Println("revoked:", errors.Is(err, tasks.ErrRevoked))

	run, err = tasks.Chain(Copy.S("photos"), Verify).Send(ctx, client)
	if err != nil {
		return err
	}
	if err := client.RevokeNode(ctx, run.ID(), <-begun); err != nil {
		return err
	}
	fmt.Println("the copy ends:", <-ended)
	_, err = run.Wait(ctx)
	fmt.Println(err)
	return nil
}

// Output:
// the copy ends: workflow was revoked
// revoked: true
// the copy ends: workflow was revoked
// task backup.copy failed: revoked
