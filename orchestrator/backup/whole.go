package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// checkWhole reads an export to its end, and returns an error if one of its jobs is not whole. Before a job is replaced,
// the one that replaces it must be known to be there.
func checkWhole(r io.ReadSeeker) error {
	in := &lines{r: bufio.NewReaderSize(r, 256<<10)}
	id, items := "", 0
	for {
		line, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var is struct {
			Kind  string `json:"kind"`
			ID    string `json:"id"`
			Items int    `json:"items"`
			Error string `json:"error"`
		}
		if err == nil && json.Unmarshal(line, &is) != nil {
			is.Kind = "" // Import names what is wrong with it
		}
		switch {
		case err != nil:
		case is.Kind == kindJob:
			id, items = is.ID, 0
		case is.Kind == kindItem:
			items++
		case is.Kind == kindEnd && is.Error != "":
			err = fmt.Errorf("the export could not read job %s: %s; import it without replacing", id, is.Error)
		case is.Kind == kindEnd && is.Items != items:
			err = fmt.Errorf("job %s has %d items here, and should have %d", id, items, is.Items)
		case is.Kind == kindEnd:
			id = ""
		}
		if err != nil {
			return &LineError{in.n, err}
		}
	}
	if id != "" {
		return &LineError{in.n, fmt.Errorf("the export ends within job %s: take another copy of it, or export again", id)}
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("replacing reads the export twice: %w; give it as a file", err)
	}
	return nil
}
