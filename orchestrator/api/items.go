package api

import (
	"context"
	"encoding/json"

	"muster/jobs"
	"muster/orchestrator/access"
	"muster/orchestrator/api/client"
)

// NewItem is an item that an agent emits.
type NewItem struct {
	Key               string          `json:"key" minLength:"1" maxLength:"512" doc:"unique in its job; emitting it again changes nothing" example:"req-17"`
	Text              string          `json:"text" maxLength:"1000000"`
	Name              string          `json:"name,omitempty" maxLength:"10000"`
	Type              string          `json:"type,omitempty" maxLength:"1000"`
	SourceDocument    string          `json:"source_document,omitempty" maxLength:"10000"`
	SourceLocation    string          `json:"source_location,omitempty" maxLength:"10000"`
	Labels            map[string]bool `json:"labels,omitempty" maxProperties:"100" doc:"labels that the pipeline declares"`
	ResearchNotes     string          `json:"research_notes,omitempty" maxLength:"1000000"`
	Citations         []string        `json:"citations,omitempty" maxItems:"10000" maxLength:"10000"`
	MentionedObjects  []string        `json:"mentioned_objects,omitempty" maxItems:"10000" maxLength:"10000"`
	MentionedMessages []string        `json:"mentioned_messages,omitempty" maxItems:"10000" maxLength:"10000"`
	Confidence        *float64        `json:"confidence_score,omitempty" minimum:"0" maximum:"1"`
	ExternalID        string          `json:"external_id,omitempty" maxLength:"1000" doc:"where it was integrated"`
	Priority          string          `json:"priority,omitempty" enum:"high,medium,low" doc:"Defaults to medium."`
	Data              json.RawMessage `json:"data,omitempty" doc:"anything else"`
}

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
