package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"muster/internal/atomicfile"
	"muster/orchestrator/job"
)

// Sites are the sites of scrapes; *sites.Service is one.
type Sites interface {
	PausedSites(ctx context.Context) ([]string, error)
	PauseSite(ctx context.Context, site string) error
}

// ExportOptions say what Export writes. The zero value is all but secrets and documents.
type ExportOptions struct {
	Jobs    job.Selection
	Secrets bool // of agents
	// Documents is a folder to which the documents of the jobs are copied, named by their SHA-256. Defaults to none.
	Documents string
}

// Exported is what Export has written.
type Exported struct {
	Jobs      int      `json:"jobs"`
	Items     int      `json:"items"` // with the stages that take the job
	Agents    int      `json:"agents"`
	Pipelines int      `json:"pipelines"`
	Sites     int      `json:"paused_sites"`
	Documents int      `json:"documents"`         // copied now
	Missing   int      `json:"documents_missing"` // that are not stored any more
	Broken    []string `json:"broken"`            // jobs that cannot be read, and why; at most 100
}

// maxReasons bounds the reasons that are kept.
const maxReasons = 100

// exporter is a run of Export.
type exporter struct {
	Store
	opts ExportOptions
	w    *bufio.Writer
	out  Exported
}

// Export writes the store to w. Each job is read at one moment, and then its items, each at one moment: what changes
// meanwhile is there as it was or as it is, and a job that is restored from it loses nothing that had ended when its
// reading began. Jobs that cannot be read are reported, and do not stop it.
func Export(ctx context.Context, s Store, w io.Writer, opts ExportOptions) (Exported, error) {
	x := &exporter{Store: s, opts: opts, w: bufio.NewWriterSize(w, 256<<10), out: Exported{Broken: []string{}}}
	if opts.Documents != "" {
		if err := os.MkdirAll(opts.Documents, 0o700); err != nil {
			return x.out, fmt.Errorf("make the folder for documents: %w", err)
		}
	}
	err := x.run(ctx)
	if err == nil {
		err = x.w.Flush()
	}
	if err != nil {
		return x.out, fmt.Errorf("export: %w", err)
	}
	return x.out, nil
}

func (x *exporter) run(ctx context.Context) error {
	schema, err := x.Schema.Version(ctx)
	if err != nil {
		return err
	}
	if err := x.write(header{Kind: kindHeader, Format: Format, Schema: schema, Created: time.Now().UTC().Truncate(time.Millisecond)}); err != nil {
		return err
	}
	if err := x.settings(ctx); err != nil {
		return err
	}
	if err := x.Jobs.Each(ctx, x.opts.Jobs, func(id string) error { return x.job(ctx, id) }); err != nil {
		return err
	}
	return x.write(doneLine{Kind: kindDone, Jobs: x.out.Jobs})
}

// write writes a line.
func (x *exporter) write(v any) error {
	enc := json.NewEncoder(x.w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// settings writes what is not a job.
func (x *exporter) settings(ctx context.Context) error {
	agents, err := x.Agents.Saved(ctx, x.opts.Secrets)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if err := x.write(agentLine{kindAgent, a}); err != nil {
			return err
		}
	}
	files, err := x.Pipelines()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := x.write(pipelineLine{kindPipeline, name, files[name]}); err != nil {
			return err
		}
	}
	paused, err := x.Sites.PausedSites(ctx)
	if err != nil {
		return err
	}
	slices.Sort(paused)
	for _, site := range paused {
		if err := x.write(siteLine{kindPausedSite, site}); err != nil {
			return err
		}
	}
	x.out.Agents, x.out.Pipelines, x.out.Sites = len(agents), len(files), len(paused)
	return nil
}

// job writes a job and its items.
func (x *exporter) job(ctx context.Context, id string) error {
	saved, err := x.Jobs.Read(ctx, id)
	if errors.Is(err, job.ErrNotFound) { // it was deleted meanwhile
		return nil
	}
	if err != nil {
		return x.broken(ctx, id, err)
	}
	if err := x.write(jobLine{kindJob, saved}); err != nil {
		return err
	}
	end := endLine{Kind: kindEnd, Job: id}
	var failed error // to write: it is not the job that is broken
	err = x.Jobs.Items(ctx, id, func(it job.SavedItem) error {
		end.Items++
		failed = x.write(itemLine{kindItem, it})
		return failed
	})
	if failed != nil {
		return failed
	}
	if err != nil && !errors.Is(err, job.ErrNotFound) {
		end.Error = err.Error()
		if err := x.broken(ctx, id, err); err != nil {
			return err
		}
	} else if err := x.document(saved.Document()); err != nil {
		return err
	}
	if end.Error == "" {
		x.out.Jobs++
		x.out.Items += end.Items
	}
	return x.write(end)
}

// broken notes a job that cannot be read. It returns the error if Redis is gone.
func (x *exporter) broken(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, down := x.Schema.Version(ctx); down != nil {
		return err
	}
	x.out.Broken = addReason(x.out.Broken, fmt.Sprintf("job %s: %v", id, err))
	return nil
}

func addReason(list []string, reason string) []string {
	if len(list) >= maxReasons {
		return list
	}
	return append(list, reason)
}

// document copies a document to the folder of the options, unless it is there.
func (x *exporter) document(d *job.Document) error {
	if d == nil || x.opts.Documents == "" {
		return nil
	}
	path := filepath.Join(x.opts.Documents, filepath.Base(d.Hash))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	from, err := x.Files.Open(d.Hash)
	if errors.Is(err, fs.ErrNotExist) {
		x.out.Missing++
		return nil
	}
	if err != nil {
		return err
	}
	defer from.Close()
	x.out.Documents++
	return atomicfile.Write(path, 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}
