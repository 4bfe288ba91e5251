package main

import "github.com/urfave/cli/v2"

// hiddenCommands are other names of commands, which help, completion and the manual omit: muster orchestrator start, muster api serve,
// muster job for muster jobs, and muster site scrape, status and list.
func hiddenCommands(env environment) []*cli.Command {
	job, status := jobsCommand(env), scrapesGetCommand(env)
	status.Name = "status"
	job.Name = "job"
	serve := dashboardCommand(env)
	serve.Name = "serve"
	list := []*cli.Command{
		job,
		{Name: "orchestrator", Subcommands: []*cli.Command{startCommand(env)}},
		{Name: "api", Subcommands: []*cli.Command{serve}},
		{Name: "site", Subcommands: []*cli.Command{scrapeCommand(env), status, sitesListCommand(env)}},
	}
	for _, c := range list {
		c.Hidden, c.Usage = true, "another name"
	}
	return list
}
