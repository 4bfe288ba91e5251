// Saga books a flight, a hotel and a car. If a booking fails, it cancels the earlier ones in reverse order. Use this
// pattern if no transaction spans all services.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"slices"

	"muster/tasks"
)

type step struct{ book, cancel tasks.Task[string, string] } // for a traveller

var (
	flight = step{tasks.New[string, string]("flight.book"), tasks.New[string, string]("flight.cancel", tasks.MaxRetry(10))}
	hotel  = step{tasks.New[string, string]("hotel.book"), tasks.New[string, string]("hotel.cancel", tasks.MaxRetry(10))}
	car    = step{tasks.New[string, string]("car.book"), tasks.New[string, string]("car.cancel", tasks.MaxRetry(10))}
	steps  = []step{flight, hotel, car}
	Undo   = tasks.New[tasks.Pair[tasks.Failure, string], string]("trip.undo")
)

// trip books everything for a traveller, or nothing.
func trip(traveller string) tasks.Signature[string] {
	booked := tasks.Chain3(flight.book.S(traveller), hotel.book, car.book)
	return booked.Rescue(tasks.Bind(Undo, traveller))
}

// undo is the plan of Undo: it cancels the bookings before the failed step, last one first.
func undo(_ context.Context, in tasks.Pair[tasks.Failure, string]) (tasks.Signature[string], error) {
	cancelled := tasks.Value(in.Second)
	failed := slices.IndexFunc(steps, func(s step) bool { return s.book.Name() == in.First.Task })
	for _, s := range slices.Backward(steps[:max(0, failed)]) {
		cancelled = tasks.Chain(cancelled, s.cancel)
	}
	return cancelled, nil
}

// call simulates calls to the services of airlines, hotels and car rentals.
func call(ctx context.Context, traveller string) (string, error) {
	service := tasks.InfoFrom(ctx).Task
	if service == "car.book" {
		return "", tasks.Permanent(fmt.Errorf("no car is left for %s", traveller))
	}
	fmt.Println(service, traveller)
	return traveller, nil
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.HandlePlan(mux, Undo, undo)
	for _, s := range steps {
		tasks.Handle(mux, s.book, call)
		tasks.Handle(mux, s.cancel, call)
	}
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()
	if _, err := trip("Ann").Do(ctx, client); err != nil {
		log.Fatal(err)
	}
}

// Output:
// flight.book Ann
// hotel.book Ann
// hotel.cancel Ann
// flight.cancel Ann
