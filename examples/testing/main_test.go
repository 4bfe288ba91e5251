package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"muster/tasks"
	"muster/tasks/taskstest"
)

func TestCheckoutRemindsOfTheTotal(t *testing.T) {
	t.Parallel()
	fleet := taskstest.New(t, Mux(), taskstest.Stub(Price, func(ctx context.Context, product string) (int, error) {
		if product == "chair" && tasks.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.New("the supplier is busy")
		}
		return 500, nil
	}))
	began := fleet.Now()
	got, err := taskstest.Do(fleet, Checkout([]string{"lamp", "chair"}, 24*time.Hour))
	if want := "please pay 1000 cents"; err != nil || got != want {
		t.Errorf("Checkout: got %q, %v, want %q", got, err, want)
	}
	if got := fleet.Now().Sub(began); got < 24*time.Hour {
		t.Errorf("reminded after %s, want a day", got)
	}
	calls := taskstest.Names(fleet.Calls())
	want := []string{"shop.price", "shop.price", "shop.price", "shop.total", "shop.remind"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls: got %v, want %v", calls, want)
	}
}

func TestCheckoutFailsWithoutAPrice(t *testing.T) {
	t.Parallel()
	fleet := taskstest.New(t, Mux(), taskstest.Fails(Price, tasks.Permanent(errors.New("sold out"))))
	_, err := taskstest.Do(fleet, Checkout([]string{"lamp"}, time.Hour))
	if f, ok := errors.AsType[*tasks.Failure](err); !ok || f.Task != "shop.price" || f.Attempts != 1 {
		t.Errorf("Checkout: got %v, want the failure of the first attempt at shop.price", err)
	}
	if calls := fleet.Calls("shop.remind"); len(calls) > 0 {
		t.Errorf("reminders: got %d, want none", len(calls))
	}
}
