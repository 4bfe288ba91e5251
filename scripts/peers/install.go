package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// installPackages installs the Debian packages that the systems need and that are missing. Without root it only lists
// them.
func installPackages(ctx context.Context, systems []*system) error {
	wanted := []string{"redis-server", "redis-tools"}
	for _, s := range systems {
		wanted = append(wanted, s.packages...)
		for command, name := range s.commands {
			if _, err := exec.LookPath(command); err != nil {
				wanted = append(wanted, name)
			}
		}
	}
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return errors.New("this needs Debian, or a system with its packages: there is no dpkg-query")
	}
	states, _ := output(ctx, "", nil, "dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n") // fails below if it fails
	missing := missingPackages(wanted, states)
	if len(missing) == 0 {
		return nil
	}
	install := "apt-get install --yes --no-install-recommends " + strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("these packages are missing; install them as root, or run this as root:\n  %s", install)
	}
	say("%s", install)
	remove, err := withoutServices()
	if err != nil {
		return err
	}
	defer remove()
	for _, command := range []string{"apt-get update --quiet", install} {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return nil
}

// withoutServices makes installed packages start no services: the benchmark starts its own servers.
func withoutServices() (remove func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); err == nil {
		return func() {}, nil
	}
	return func() { os.Remove(policy) }, os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755)
}

// missingPackages returns the wanted packages that are not installed. states are the lines of dpkg-query.
func missingPackages(wanted []string, states string) []string {
	var missing []string
	for _, name := range wanted {
		if !slices.Contains(strings.Split(states, "\n"), name+" installed") {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}
