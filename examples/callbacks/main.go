// Callbacks run beside the work and do not change its value: OnSuccess on what a signature yields, OnError on its failure, and
// LinkError on the failure of one step. Wait does not wait for them; Watch ends when they have ended, too.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"

	"muster/tasks"
)

var (
	Charge    = tasks.New[int, int]("payment.charge", tasks.LinkError(Alert)) // cents, of which all are charged
	Ship      = tasks.New[int, string]("payment.ship")
	Receipt   = tasks.New[string, bool]("payment.receipt")
	Apologize = tasks.New[tasks.Failure, bool]("payment.apologize")
	Alert     = tasks.New[tasks.Failure, bool]("payment.alert")
)

func charge(_ context.Context, cents int) (int, error) {
	if cents > 10000 {
		return 0, errors.New("card declined")
	}
	return cents, nil
}

func ship(_ context.Context, cents int) (string, error) { return fmt.Sprint("parcel for ", cents), nil }

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
	var mu sync.Mutex // guards said
	var said []string
	say := func(words ...any) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintln(words...))
		return true, nil
	}
	mux := tasks.NewMux()
	tasks.Handle(mux, Charge, charge)
	tasks.Handle(mux, Ship, ship)
	tasks.Handle(mux, Receipt, func(_ context.Context, parcel string) (bool, error) { return say("receipt:", parcel) })
	tasks.Handle(mux, Apologize, func(_ context.Context, f tasks.Failure) (bool, error) { return say("sorry:", f.Message) })
	tasks.Handle(mux, Alert, func(_ context.Context, f tasks.Failure) (bool, error) { return say("alert:", f.Task, "failed") })
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		return err
	}
	defer worker.Stop()

	for _, cents := range []int{500, 90000} {
		order := tasks.Chain(Charge.S(cents), Ship)
		order = tasks.OnSuccess(order, Receipt)
		order = tasks.OnError(order, Apologize)
		run, err := order.Send(ctx, client)
		if err != nil {
			return err
		}
		for _, err := range run.Watch(ctx) {
			if err != nil {
				return err
			}
		}
		fmt.Println(run.Wait(ctx))
	}
	slices.Sort(said) // callbacks run at once, in any order
	for _, line := range said {
		fmt.Print(line)
	}
	return nil
}

// Output:
// parcel for 500 <nil>
//  task payment.charge failed: card declined
// alert: payment.charge failed
// receipt: parcel for 500
// sorry: card declined
