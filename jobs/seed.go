package jobs

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Seeded is the result of Seed.
type Seeded struct {
	Created int `json:"created"`
	Kept    int `json:"kept"` // jobs whose ID existed before
}

// maxSeedLine is the longest line of a seed, in bytes.
const maxSeedLine = 16 << 20

// Seed creates the jobs of a JSON Lines file, one request per line. It skips jobs whose ID exists, so it may be repeated.
// On an error, which names the line, the jobs of the lines before it exist.
func (s *Service) Seed(ctx context.Context, r io.Reader) (done Seeded, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxSeedLine)
	n := 1
	for ; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		created, err := s.seed(ctx, line)
		if err != nil {
			return done, fmt.Errorf("seed: line %d: %w", n, err)
		}
		if created {
			done.Created++
		} else {
			done.Kept++
		}
	}
	if err := lines.Err(); err != nil {
		return done, fmt.Errorf("seed: line %d: %w", n, err)
	}
	return done, nil
}

// seed creates the job of a line, and reports whether it is new.
func (s *Service) seed(ctx context.Context, line []byte) (bool, error) {
	var l struct {
		ID        string          `json:"id"`
		Pipeline  string          `json:"pipeline"`
		Prompt    string          `json:"prompt"`
		Context   json.RawMessage `json:"context"`
		Priority  int             `json:"priority"`
		Labels    []string        `json:"labels"`
		After     []string        `json:"after"`
		OnFailure string          `json:"on_failure"`
		At        time.Time       `json:"at"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = bad(cmp.Or(wrong.Field, "the line"), "has the wrong type %s", wrong.Value)
		}
		return false, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return false, errors.New("unexpected data after the object; write one object per line")
	}
	if l.ID == "" {
		return false, bad("id", "required; repeated seeds recognize the job by it")
	}
	if _, err := s.read(ctx, l.ID); !errors.Is(err, ErrNotFound) {
		return false, err
	}
	_, created, err := s.create(ctx, l.ID, Request{
		Pipeline: l.Pipeline, Prompt: l.Prompt, Context: l.Context, Priority: l.Priority, Labels: l.Labels,
		After: l.After, OnFailure: l.OnFailure, At: l.At, Dedupe: DedupeAllow,
	})
	return created, err
}
