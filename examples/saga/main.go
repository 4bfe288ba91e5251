// Saga books a flight, a hotel and a car. If a booking fails, it cancels the earlier ones in reverse order. Use this
// pattern if no transaction spans all services.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"muster/tasks"
)

// Booking is the result of a step.
type Booking struct{ Traveller, Number string }

var (
	Flight       = tasks.New[string, Booking]("flight.book")
	Hotel        = tasks.New[Booking, Booking]("hotel.book")
	Car          = tasks.New[Booking, Booking]("car.book")
	CancelFlight = tasks.New[Booking, struct{}]("flight.cancel", tasks.MaxRetry(10))
	CancelHotel  = tasks.New[Booking, struct{}]("hotel.cancel", tasks.MaxRetry(10))
)

// trip books everything for a traveller, or nothing.
func trip(traveller string) tasks.Signature[Booking] {
	return tasks.Compensate(Flight.S(traveller), CancelFlight, func(flight tasks.Signature[Booking]) tasks.Signature[Booking] {
		return tasks.Compensate(tasks.Chain(flight, Hotel), CancelHotel, func(hotel tasks.Signature[Booking]) tasks.Signature[Booking] {
			return tasks.Chain(hotel, Car)
		})
	})
}

func main() {
	ctx := context.Background()
	client, err := tasks.Connect(ctx, cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mux := tasks.NewMux()
	tasks.Handle(mux, Flight, func(_ context.Context, traveller string) (Booking, error) {
		fmt.Println("flight AF17 for", traveller)
		return Booking{traveller, "AF17"}, nil
	})
	tasks.Handle(mux, Hotel, func(_ context.Context, b Booking) (Booking, error) {
		fmt.Println("room 312 for", b.Traveller)
		return Booking{b.Traveller, "312"}, nil
	})
	tasks.Handle(mux, Car, func(_ context.Context, b Booking) (Booking, error) {
		return Booking{}, tasks.Permanent(fmt.Errorf("no car is left for %s", b.Traveller))
	})
	tasks.HandleAction(mux, CancelFlight, func(_ context.Context, b Booking) error {
		fmt.Println("cancelled flight", b.Number)
		return nil
	})
	tasks.HandleAction(mux, CancelHotel, func(_ context.Context, b Booking) error {
		fmt.Println("cancelled room", b.Number)
		return nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer worker.Stop()
	_, err = trip("Ann").Do(ctx, client)
	fmt.Println(err)
}

// Output:
// flight AF17 for Ann
// room 312 for Ann
// cancelled room 312
// cancelled flight AF17
// task car.book failed: no car is left for Ann
