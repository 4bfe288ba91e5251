package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is where and when was measured.
type machine struct {
	Processor string
	Cores     int
	Gigabytes int
	System    string
	Versions  []string // of what the peers run on
	Date      string
	LoadFrom  string // the load of the last minute, before
}

func thisMachine(ctx context.Context) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Date: time.Now().UTC().Format("2 January 2006")}
	m.Processor = fieldOf("/proc/cpuinfo", "model name")
	var kilobytes int
	_, _ = fmt.Sscan(fieldOf("/proc/meminfo", "MemTotal"), &kilobytes) // 0 if the file is of another form
	m.Gigabytes = (kilobytes + 1<<19) >> 20
	m.System = strings.Trim(fieldOf("/etc/os-release", "PRETTY_NAME"), `"`)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	m.LoadFrom, _, _ = strings.Cut(string(load), " ")
	for _, command := range []string{"go version", "redis-server --version", "/usr/bin/python3 --version", "/usr/bin/ruby --version", "node --version", "psql --version"} {
		out, err := output(ctx, "", nil, strings.Fields(command)...)
		if err != nil {
			continue // the systems that need it are left out
		}
		m.Versions = append(m.Versions, versionOf(command, out))
	}
	return m, nil
}

// Busy reports whether the machine had other work than the benchmark.
func (m machine) Busy() bool {
	load, err := strconv.ParseFloat(m.LoadFrom, 64)
	return err == nil && load > float64(m.Cores)/2
}

// fieldOf is the value of the first line "name: value" or "name=value" of a file, or "".
func fieldOf(path, name string) string {
	raw, _ := os.ReadFile(path) // no file, no value
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}

// versionOf makes "Go 1.26.0" of a command and what it prints.
func versionOf(command, out string) string {
	names := map[string]string{"go": "Go", "redis-server": "Redis", "python3": "Python", "ruby": "Ruby", "node": "Node.js", "psql": "PostgreSQL"}
	program, _, _ := strings.Cut(command, " ")
	name := names[program[strings.LastIndexByte(program, '/')+1:]]
	for _, word := range strings.Fields(out) {
		number := strings.TrimLeft(word, "vgo=")
		if number != "" && number[0] >= '0' && number[0] <= '9' {
			return name + " " + number
		}
	}
	return name
}
