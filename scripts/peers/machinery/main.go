// Command machinery is the peer for RichardKnop/machinery, with the settings of its example for go-redis.
package main

import (
	"context"
	"io"
	"log"
	"net/url"
	"time"

	"github.com/RichardKnop/machinery/v2"
	redisbackend "github.com/RichardKnop/machinery/v2/backends/redis"
	redisbroker "github.com/RichardKnop/machinery/v2/brokers/redis"
	"github.com/RichardKnop/machinery/v2/config"
	eagerlock "github.com/RichardKnop/machinery/v2/locks/eager"
	machinerylog "github.com/RichardKnop/machinery/v2/log"
	"github.com/RichardKnop/machinery/v2/tasks"

	"muster/scripts/peers/peer"
)

func main() {
	quiet := log.New(io.Discard, "", 0)
	machinerylog.SetDebug(quiet)
	machinerylog.SetInfo(quiet)
	peer.Main(peer.System{Module: "github.com/RichardKnop/machinery/v2", Work: work, Open: open})
}

func server(address string) (*machinery.Server, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	cnf := &config.Config{
		DefaultQueue:    "machinery_tasks",
		ResultsExpireIn: 3600,
		NoUnixSignals:   true,
		Redis: &config.RedisConfig{
			MaxIdle: 3, IdleTimeout: 240, ReadTimeout: 15, WriteTimeout: 15, ConnectTimeout: 15,
			NormalTasksPollPeriod: 1000, DelayedTasksPollPeriod: 500,
		},
	}
	at := []string{u.Host}
	return machinery.NewServer(cnf, redisbroker.NewGR(cnf, at, 0), redisbackend.NewGR(cnf, at, 0), eagerlock.New()), nil
}

func work(ctx context.Context, url string, concurrency int, ready func()) error {
	s, err := server(url)
	if err != nil {
		return err
	}
	err = s.RegisterTasks(map[string]any{
		"single": func(id int64) (int64, error) { return id, peer.Mark("single", int(id)) },
		"step":   func(id int64) (int64, error) { return id, peer.Mark("step", int(id)) },
		"member": func(id int64) (int64, error) { return id, peer.Mark("member", int(id)) },
		"body": func(members int64, ids ...int64) (int64, error) {
			return ids[0], peer.MarkBody(int(ids[0]), len(ids), int(members))
		},
		"slow": func(id int64) (int64, error) {
			err := peer.Mark("slow", int(id))
			time.Sleep(peer.SlowFor)
			return id, err
		},
	})
	if err != nil {
		return err
	}
	w := s.NewWorker("peer", concurrency)
	done := make(chan error, 1)
	w.LaunchAsync(done)
	ready()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		w.Quit()
		return nil
	}
}

type sender struct{ server *machinery.Server }

func open(_ context.Context, url string) (peer.Sender, error) {
	s, err := server(url)
	return sender{s}, err
}

func task(name string, args ...int) *tasks.Signature {
	s := &tasks.Signature{Name: name}
	for _, a := range args {
		s.Args = append(s.Args, tasks.Arg{Type: "int64", Value: int64(a)})
	}
	return s
}

func (s sender) Single(ctx context.Context, id int) error {
	_, err := s.server.SendTaskWithContext(ctx, task("single", id))
	return err
}

func (s sender) Slow(ctx context.Context, id int) error {
	_, err := s.server.SendTaskWithContext(ctx, task("slow", id))
	return err
}

func (s sender) Chain(ctx context.Context, id, steps int) error {
	all := []*tasks.Signature{task("step", id)}
	for range steps - 1 {
		all = append(all, task("step")) // receives the previous result
	}
	c, err := tasks.NewChain(all...)
	if err != nil {
		return err
	}
	_, err = s.server.SendChainWithContext(ctx, c)
	return err
}

const sendersOfGroup = 10

func (s sender) Chord(ctx context.Context, id, members int) error {
	all := make([]*tasks.Signature, members)
	for i := range all {
		all[i] = task("member", id)
	}
	g, err := tasks.NewGroup(all...)
	if err != nil {
		return err
	}
	c, err := tasks.NewChord(g, task("body", members))
	if err != nil {
		return err
	}
	_, err = s.server.SendChordWithContext(ctx, c, sendersOfGroup)
	return err
}

func (s sender) Bulk(ctx context.Context, first, n int) error {
	all := make([]*tasks.Signature, n)
	for i := range all {
		all[i] = task("single", first+i)
	}
	g, err := tasks.NewGroup(all...)
	if err != nil {
		return err
	}
	_, err = s.server.SendGroupWithContext(ctx, g, sendersOfGroup)
	return err
}
