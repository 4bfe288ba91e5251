package report

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"muster/internal/wrap"
	"muster/jobs"
)

// WriteJSON writes one JSON object: "item_list" with all items of a job, each on a line, and then the fields of its
// [Summary]. If the job cannot be read, nothing is written; after a later failure the output is not valid JSON.
func WriteJSON(ctx context.Context, w io.Writer, src Source, id string) error {
	j, err := get(ctx, src, id)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 64<<10)
	write := func(v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_, err = b.Write(text)
		return err
	}
	before := "{\"item_list\":[\n"
	s, err := collect(ctx, src, j, func(it jobs.Item) error {
		_, _ = b.WriteString(before) // the next write returns its error
		before = ",\n"
		return write(it)
	})
	if err != nil {
		return err
	}
	if before != ",\n" {
		_, _ = b.WriteString(before)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("report on job %s: %w", id, err)
	}
	_, _ = b.WriteString("\n],\n")
	_, _ = b.Write(text[1:]) // without its brace
	_, _ = b.WriteString("\n")
	return wrap.Err(b.Flush(), "write the report on job %s", id)
}
