package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"muster/internal/webui"
	"muster/jobs"
	"muster/orchestrator/access"
	taskui "muster/tasks/ui"
)

// The labels of the choices for an item in review.
const (
	acceptItem = "Accept"
	rejectItem = "Reject"
	retryItem  = "Try again"
)

var itemChoices = []taskui.Choice{
	{Label: acceptItem, Effect: "The item goes to its next stage, or is integrated by its last one.", Comment: "Comment"},
	{Label: rejectItem, Effect: "The item fails and is not integrated.", Danger: true, Comment: "Reason", Required: true},
	{Label: retryItem, Effect: "The stage of the item runs again, with new attempts."},
}

// reviews are the decisions about items in review, on the page "To do" of tasks/ui. Their IDs are JOB/KEY.
type reviews struct{ *pages }

// Count returns the number of items in review.
func (p reviews) Count(ctx context.Context) (int64, error) {
	return cached(ctx, &p.known.review, keepReviews, func(ctx context.Context) (int64, error) {
		items, _, err := p.Jobs.InReview(ctx)
		return items, err
	})
}

// List returns the items in review of all jobs.
func (p reviews) List(ctx context.Context, most int) (list []taskui.ToDo, more bool, err error) {
	found, err := p.Jobs.Reviews(ctx, most)
	for _, it := range found.Items {
		list = append(list, toDo(it))
	}
	return list, found.More, err
}

func toDo(it jobs.Item) taskui.ToDo {
	return taskui.ToDo{
		ID: it.JobID + "/" + it.Key, Subject: webui.Plain(cmp.Or(it.Name, it.Key)), URL: itemURL(it.JobID, it.Key), Of: it.JobID, OfURL: jobURL(it.JobID),
		Text: webui.Plain(it.Text), Problem: webui.Plain(it.LastError), Since: it.UpdatedAt, Choices: itemChoices,
	}
}

// Get returns the decision about an item.
func (p reviews) Get(ctx context.Context, id string) (taskui.ToDo, error) {
	job, key, _ := strings.Cut(id, "/")
	it, err := p.itemOf(ctx, job, key)
	if err != nil {
		return taskui.ToDo{}, err
	}
	if it.Status == jobs.ItemReview {
		return toDo(it), nil
	}
	by := ""
	if it.ReviewedBy != "" {
		by = " by " + line(100, it.ReviewedBy)
	}
	return taskui.ToDo{}, fmt.Errorf("%w%s: item %s is %s", taskui.ErrDecided, by, line(60, it.Key), it.Status)
}

// Decide accepts, rejects or retries an item.
func (p reviews) Decide(ctx context.Context, id string, choice taskui.Choice, comment string) error {
	if len(comment) > maxReason {
		return webui.Invalid("The comment is too long: at most %d bytes are kept.", maxReason)
	}
	job, key, _ := strings.Cut(id, "/")
	var err error
	if choice.Label == retryItem {
		_, err = p.Jobs.Retry(ctx, job, key)
	} else {
		_, err = p.Jobs.Decide(ctx, job, key, jobs.Decision{Accept: choice.Label == acceptItem, Reason: comment, By: access.CallerOf(ctx).Name})
	}
	if errors.Is(err, jobs.ErrNotReview) {
		if _, decided := p.Get(ctx, id); decided != nil {
			return decided
		}
	}
	if status, _, known := explain(err); known && status < http.StatusInternalServerError {
		err = webui.Invalid("%v", err)
	}
	return noJob(job, err)
}
