package api

import (
	"context"
	"encoding/json"

	"muster/jobs"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// NewItem is an item that an agent emits.
type NewItem = client.NewItem

// newItems converts items of a request to items of the job service.
func newItems(list []NewItem) []jobs.Item {
	out := make([]jobs.Item, len(list))
	for i, n := range list {
		out[i] = jobs.Item{
			Key: n.Key, Text: n.Text, Name: n.Name, Type: n.Type, SourceDocument: n.SourceDocument, SourceLocation: n.SourceLocation,
			Labels: n.Labels, ResearchNotes: n.ResearchNotes, Citations: n.Citations, MentionedObjects: n.MentionedObjects,
			MentionedMessages: n.MentionedMessages, Confidence: n.Confidence, ExternalID: n.ExternalID, Priority: n.Priority, Data: n.Data,
		}
	}
	return out
}

// addItems adds the operations on the items of jobs.
func addItems(s *server) {
	implement(s, client.ListItems, func(ctx context.Context, in *client.ItemFilter) (out client.Page[jobs.Item], err error) {
		if err := s.reads(ctx, in.ID); err != nil {
			return out, err
		}
		cursor, err := readCursor("items", in.Cursor)
		if err != nil {
			return out, err
		}
		page, err := s.cfg.Jobs.Items(ctx, in.ID, jobs.ItemFilter{Status: jobs.ItemStatus(in.Status), Cursor: cursor, Limit: in.Limit})
		return client.Page[jobs.Item]{Data: orEmpty(page.Items), Next: makeCursor("items", page.Next)}, err
	})
	implement(s, client.GetItem, func(ctx context.Context, in *client.ItemPath) (out jobs.Item, err error) {
		if err := s.reads(ctx, in.ID); err != nil {
			return out, err
		}
		return s.cfg.Jobs.Item(ctx, in.ID, in.Key)
	})
	implement(s, client.DecideItem, func(ctx context.Context, in *client.ItemDecision) (jobs.Item, error) {
		d := jobs.Decision{Accept: in.Body.Accept, Reason: in.Body.Reason, Patch: json.RawMessage(in.Body.Item), By: access.CallerOf(ctx).Name}
		return s.cfg.Jobs.Decide(ctx, in.ID, in.Key, d)
	})
	implement(s, client.DecideItems, func(ctx context.Context, in *client.ItemDecisions) (client.DecidedItems, error) {
		n, err := s.cfg.Jobs.DecideAll(ctx, in.ID, in.Body.Keys, jobs.Decision{Accept: in.Body.Accept, Reason: in.Body.Reason, By: access.CallerOf(ctx).Name})
		return client.DecidedItems{Decided: n}, err
	})
	implement(s, client.ListReviews, func(ctx context.Context, in *client.ReviewFilter) (client.Page[jobs.Item], error) {
		reviews, err := s.cfg.Jobs.Reviews(ctx, in.Limit)
		return pageOf(reviews.Items, err)
	})
}
