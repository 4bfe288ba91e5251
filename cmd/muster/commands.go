package main

import (
	"os"

	"github.com/urfave/cli/v2"
)

// commands is the command tree, in the order in which a new user needs it.
func commands(env environment) []*cli.Command {
	return append([]*cli.Command{
		demoCommand(env),
		startCommand(env),
		statusCommand(env),
		workerCommand(env),
		scrapeCommand(env),
		scrapesCommand(env),
		jobsCommand(env),
		pipelinesCommand(env),
		agentsCommand(env),
		webhooksCommand(env),
		sitesCommand(env),
		proxiesCommand(env),
		judgeCommand(env),
		renderCommand(env),
		queueCommand(env),
		pauseCommand(env),
		resumeCommand(env),
		breakersCommand(env),
		dashboardCommand(env),
		keysCommand(env),
		auditCommand(env),
		healthCommand(env),
		workflowsCommand(env),
		tasksCommand(env),
		workersCommand(env),
		queuesCommand(env),
		limitsCommand(env),
		schedulesCommand(env),
		configCommand(env),
		storeCommand(env),
		completionCommand(env),
		versionCommand(env),
		manCommand(env),
		helpCommand(),
	}, hiddenCommands(env)...)
}

// touch creates an empty file, for scripts that wait for it; none if path is empty.
func touch(path string) {
	if path != "" {
		_ = os.WriteFile(path, nil, 0o600) // a script that waits for the file times out
	}
}
