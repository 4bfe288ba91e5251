package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"muster/jobs/pipeline"
	"muster/tasks/workqueue"
)

// endingChunk is how many endings become events in one script.
const endingChunk = 200

// seq is the form of the places of endings.
var seq = regexp.MustCompile(`^[0-9]{1,19}-[0-9]{1,19}$`)

// tellEndings adds the events of items that have failed or were decided on. The queue, which is in another slot than the
// events, has noted each in the step that made it true; the record contains the last ending that is in the events, and changes with
// them. So each event is added once, by whoever comes first: who ended the item, the sweep, or who ends the job.
func (s *Service) tellEndings(ctx context.Context, id string) error {
	p, err := s.plan(ctx, id)
	if err != nil {
		return err
	}
	keys := append(append([]string{recordKey(id)}, s.eventKeys(id)...), reviewsKey)
	for {
		after, err := s.rdb.HGet(ctx, recordKey(id), "endings").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("read job %s: %w", id, err)
		}
		from := after
		if !seq.MatchString(from) { // damaged: events twice are better than none
			from = ""
		}
		endings, err := s.queue(id).Endings(ctx, from, endingChunk)
		if err != nil || len(endings) == 0 {
			return err
		}
		args := []any{id, after, endings[len(endings)-1].Seq}
		for _, e := range endings {
			key, ok := strings.CutPrefix(e.Item, itemID(""))
			if !ok {
				continue // a stage that takes the job
			}
			event, data, err := s.ending(ctx, id, p, key, e)
			if err != nil {
				return err
			}
			args = append(args, event, encode(data))
		}
		reply, err := s.run(ctx, "add the events of items of job "+id, "endings", keys, args...)
		if err != nil {
			return err
		}
		if toInt(reply[0]) == 0 { // another was faster, or the job was deleted
			if err := s.exists(ctx, id); err != nil {
				return err
			}
		}
	}
}

// ending returns the event of an item that has ended.
func (s *Service) ending(ctx context.Context, id string, p *pipeline.Pipeline, key string, e workqueue.Ending) (event string, data map[string]string, err error) {
	if e.State == workqueue.StateError {
		event = "item.failed"
		stage := ""
		for _, st := range p.Stages {
			if len(e.ResourceKeys) == 1 && e.ResourceKeys[0] == lane(st.Name) {
				if stage = st.Name; st.Review {
					event = "item.review"
				}
			}
		}
		return event, map[string]string{"key": key, "stage": stage, "error": e.Note}, nil
	}
	data = map[string]string{"key": key, "decision": "accept", "reason": e.Note, "by": ""}
	if e.State == workqueue.StateSkipped {
		data["decision"] = "reject"
	}
	result := e.Data
	if len(result) == 0 {
		infos, err := s.queue(id).Get(ctx, e.Item)
		if err != nil {
			return "", nil, err
		}
		if len(infos) == 1 {
			result = infos[0].Result
		}
	}
	var o outcome
	if json.Unmarshal(result, &o) == nil {
		data["reason"], data["by"] = o.Reason, o.Reviewer
	}
	return "item.decided", data, nil
}
