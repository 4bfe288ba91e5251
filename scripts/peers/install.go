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

// installPackages installs missing Debian packages of the systems. Without root it only returns an error that lists them.
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
		return errors.New("dpkg-query not found: Debian or a derivative is required")
	}
	states, _ := output(ctx, "", nil, "dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n") // without states, all packages are missing
	missing := missingPackages(wanted, states)
	if len(missing) == 0 {
		return nil
	}
	install := "apt-get install --yes --no-install-recommends " + strings.Join(missing, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing packages; install them as root, or run this command as root:\n  %s", install)
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

// withoutServices prevents installed packages from starting services, because the benchmark starts its own servers.
func withoutServices() (remove func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); err == nil {
		return func() {}, nil
	}
	return func() { os.Remove(policy) }, os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755)
}

// missingPackages returns the wanted packages that are not installed. states is the output of dpkg-query.
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
