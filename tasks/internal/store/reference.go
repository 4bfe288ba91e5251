package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A reference names one send of a workflow: "<id>~" if its id was generated, "<id>~<nonce>" if the sender chose the id.
// Keys, ready lists, leases, messages and tokens have references, so that leases and results of a deleted workflow have no
// effect on a later workflow with the same id, and a graph in memory never changes. Users see ids.
const referenceMark = "~"

// A chosen ID has up to 100 bytes.
const (
	nonceSize    = 12 // characters, which make 60 random bits
	MaxReference = 100 + len(referenceMark) + nonceSize
)

// NewReference returns a reference for a workflow with a chosen id.
func NewReference(id string) string {
	return id + referenceMark + strings.ToLower(rand.Text()[:nonceSize])
}

// GeneratedReference returns the reference of a workflow with a generated id, which no other workflow has.
func GeneratedReference(id string) string { return id + referenceMark }

// IDOf returns the id in a reference.
func IDOf(ref string) string {
	id, _, _ := strings.Cut(ref, referenceMark)
	return id
}

// Address returns the address of the workflow with a reference, or of the latest one with an id. It does not look
// whether the workflow exists.
func (s Flows) Address(ctx context.Context, refOrID string) (Flow, error) {
	n, err := s.shardCount(ctx)
	if err != nil {
		return Flow{}, err
	}
	f := Flow{Ref: refOrID, shard: shardOf(IDOf(refOrID), n)}
	if strings.Contains(refOrID, referenceMark) {
		return f, nil
	}
	f.Ref, err = s.rdb.Get(ctx, s.chosenKey(f.shard, refOrID)).Result()
	if errors.Is(err, redis.Nil) {
		f.Ref, err = GeneratedReference(refOrID), nil
	}
	if err != nil {
		return Flow{}, fmt.Errorf("look up workflow %s: %w", refOrID, err)
	}
	return f, nil
}
