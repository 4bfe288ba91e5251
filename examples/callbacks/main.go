// Callbacks run beside the work and do not change its value: OnSuccess on what it yields, OnError on its failure,
// LinkError on the failure of one step. Wait does not wait for them, WaitAll does.
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
	Charge    = tasks.New[int, string]("payment.charge")
	Ship      = tasks.New[string, string]("payment.ship")
	Receipt   = tasks.New[string, int]("payment.receipt")
	Apologize = tasks.New[tasks.Failure, int]("payment.apologize")
)

func charge(_ context.Context, cents int) (string, error) {
	if cents > 10000 {
		return "", errors.New("card declined")
	}
	return fmt.Sprint(cents, " cents"), nil
}

func ship(_ context.Context, payment string) (string, error) { return "parcel for " + payment, nil }

func receipt(_ context.Context, parcel string) (int, error) { return fmt.Println("receipt:", parcel) }

func apologize(_ context.Context, f tasks.Failure) (int, error) {
	return fmt.Println("sorry:", f.Message)
}

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
	mux := tasks.NewMux()
	tasks.Handle(mux, Charge, charge)
	tasks.Handle(mux, Ship, ship)
	tasks.Handle(mux, Receipt, receipt)
	tasks.Handle(mux, Apologize, apologize)
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, order := range []tasks.Signature[string]{
		tasks.OnSuccess(tasks.Chain(Charge.S(500), Ship), Receipt),
		tasks.OnError(tasks.Chain(Charge.S(90000), Ship), Apologize),
		tasks.Chain(Charge.S(90000, tasks.LinkError(Apologize)), Ship),
	} {
		run, err := order.Send(ctx, client)
		if err != nil {
			return err
		}
		if err := run.WaitAll(ctx); err != nil { // for callbacks, too
			return err
		}
	}
	return nil
}

// Output:
// receipt: parcel for 500 cents
// sorry: card declined
// sorry: card declined
