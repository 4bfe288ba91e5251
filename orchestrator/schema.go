package orchestrator

import (
	"log/slog"
	"os"

	"muster/orchestrator/backup"
	"muster/orchestrator/job"
	"muster/orchestrator/store"
	"muster/tasks"
)

// migrations are all that there have been, in order. The schema of the store is
// the number of the last one.
var migrations = []store.Migration{
	job.EndedByKind(1),
}

// NewStore returns the store that a client is connected to: its schema, and its
// lock. A nil logger logs nothing.
func NewStore(client *tasks.Client, logger *slog.Logger) *store.Store {
	return store.New(client.Redis(), migrations, logger)
}

// Backup returns what is exported and imported.
func (s *System) Backup() backup.Store {
	return backup.Store{
		Schema: NewStore(s.Client, s.logger), Jobs: job.NewArchive(s.Jobs), Agents: s.Agents, Sites: s.Sites, Files: s.Documents,
		Pipelines: s.pipelineFiles, PipelineDir: s.cfg().Pipelines(),
	}
}

// pipelineFiles returns the files of the pipelines that are not shipped, by name.
func (s *System) pipelineFiles() (map[string]string, error) {
	files := map[string]string{}
	for _, p := range s.Pipelines.List() {
		file := s.Pipelines.File(p.Name)
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		files[p.Name] = string(text)
	}
	return files, nil
}
