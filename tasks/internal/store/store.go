// Package store keeps workflows, their results and progress in Redis.
//
// A workflow is one hash. The ready lists, the agenda and the leases of its shard are in the same slot of a cluster.
// Each change is one script, and repeating it changes nothing more. The record of a node, which [ParseRecord] reads,
// is one of these:
//
//	(none)                                    waits, or is ready
//	D|attempts|deaths|due|expires|lane        delayed
//	T|attempts|deaths|due|expires|lane        the same, after a failure
//	L|attempts|deaths|due|expires|lane        the same, for a limit per key
//	H|attempts|deaths|due|expires|lane        the same, for a worker with a handler
//	G|attempts|deaths|due|expires|lane        the same, for others of its batch
//	Q|attempts|deaths|0|expires|lane          ready to run, or to run again; after G with the time at which it was due
//	W|attempt|started|deadline                open: waits for an external result
//	P|attempts|deaths|started|worker          its plan runs
//	E                                         a map that has its members
//	e                                         a map whose members have all succeeded
//	k|cause                                   skipped; not yet propagated to the nodes that need it
//	K|cause                                   skipped
//	S F X|attempts|started|ended|worker|body  success, failure, revoked; times in ms since the workflow was sent
//
// A running node has no record: a worker has a lease of it.
package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// The errors that the ones of more causes match, for users of package tasks.
var (
	ErrNotFound = errors.New("not found")
	ErrRunning  = errors.New("the workflow is running: cancel it or wait until it has ended")
)

// Kind returns an error with a text that also matches another error.
func Kind(of error, text string) error { return &kind{text, of} }

type kind struct {
	text string
	of   error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return target == k.of }

// ErrUnknown means that no workflow has this ID.
var ErrUnknown = Kind(ErrNotFound, "no such workflow: it was never sent, or its retention is over")

// Store has the parts of the store, over one connection. It may be used by many goroutines at once.
type Store struct {
	*db

	Flows     Flows
	Turns     Turns
	Queues    Queues
	Leases    Leases
	Agenda    Agenda
	Tokens    Tokens
	Workers   Workers
	Index     Index
	Counts    Counts
	History   History
	Schedules Schedules
	Progress  ProgressKeys
	Limits    Limits
	Unhandled Unhandled
}

// The parts of a store.
type (
	Flows        struct{ *db } // workflows, with the data of their nodes
	Turns        struct{ *db } // the changes of nodes: a worker takes nodes and stores results
	Queues       struct{ *db } // rings and ready lists
	Leases       struct{ *db } // of workers, for nodes
	Agenda       struct{ *db } // nodes that wait for their time, and steps to take
	Tokens       struct{ *db } // nodes that wait for an external result
	Workers      struct{ *db } // the live workers
	Index        struct{ *db } // the listing of workflows
	Counts       struct{ *db } // how many tasks ended, over time
	History      struct{ *db } // queues and workers, over time
	Schedules    struct{ *db } // schedules, whose ticks send workflows
	ProgressKeys struct{ *db } // the public progress keys of workflows
	Limits       struct{ *db } // limits per key
	Unhandled    struct{ *db } // nodes without a handler
)

// New returns the Store of a namespace on rdb.
func New(rdb redis.UniversalClient, namespace string) *Store {
	d := &db{Keys: Keys(namespace), rdb: rdb, scripts: plain()}
	return &Store{d, Flows{d}, Turns{d}, Queues{d}, Leases{d}, Agenda{d}, Tokens{d}, Workers{d}, Index{d}, Counts{d}, History{d}, Schedules{d}, ProgressKeys{d}, Limits{d}, Unhandled{d}}
}

// Redis returns the connection of the store.
func (s *Store) Redis() redis.UniversalClient { return s.rdb }

// Shards returns how many shards there are. It refuses a store of another schema.
func (s *Store) Shards(ctx context.Context) (int, error) { return s.shardCount(ctx) }

// UseScripts replaces the scripts. Call it before anything else. It is for tests that give scripts another clock, or a fault.
func (s *Store) UseScripts(x Scripts) { s.scripts = x }

// Bus returns the channel of [Store.Tell].
func (s *Store) Bus() string { return s.BusChannel(s.database()) }

// Tell publishes a message to all processes. On a Cluster it is published on the server of a shard, because the server with the slot
// of the channel can be slow. Use shard 0 for a message that concerns no shard.
func (s *Store) Tell(ctx context.Context, shard int, message string) error {
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		server, err := c.MasterForKey(ctx, s.Prefix(shard))
		if err != nil {
			return err
		}
		return server.Publish(ctx, s.Bus(), message).Err()
	}
	return s.rdb.Publish(ctx, s.Bus(), message).Err()
}
