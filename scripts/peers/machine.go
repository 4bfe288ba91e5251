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

// machine describes the machine and the date of a measurement.
type machine struct {
	Processor string
	Cores     int
	Gigabytes int
	System    string
	Versions  []string // versions of runtimes and stores
	Date      string
	LoadFrom  string // load average before the run
}

func thisMachine(ctx context.Context) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Date: time.Now().UTC().Format("2 January 2006")}
	m.Processor = fieldOf("/proc/cpuinfo", "model name")
	var kilobytes int
	_, _ = fmt.Sscan(fieldOf("/proc/meminfo", "MemTotal"), &kilobytes) // 0 for another format
	m.Gigabytes = (kilobytes + 1<<19) >> 20
	m.System = strings.Trim(fieldOf("/etc/os-release", "PRETTY_NAME"), `"`)
	var err error
	if m.LoadFrom, err = loadAverage(); err != nil {
		return m, err
	}
	for _, command := range []string{"go version", "redis-server --version", "/usr/bin/python3 --version", "/usr/bin/ruby --version", "node --version", "psql --version"} {
		out, err := output(ctx, "", nil, strings.Fields(command)...)
		if err != nil {
			continue // systems that require it are skipped
		}
		m.Versions = append(m.Versions, versionOf(command, out))
	}
	return m, nil
}

// loadAverage returns the load average of the last minute.
func loadAverage() (string, error) {
	raw, err := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(raw), " ")
	return load, err
}

// awaitQuiet waits until the machine is quiet, at most for a time.
func awaitQuiet(ctx context.Context, most time.Duration) error {
	m := machine{Cores: runtime.NumCPU()}
	for until := time.Now().Add(most); ; {
		var err error
		if m.LoadFrom, err = loadAverage(); err != nil {
			return err
		}
		if !m.Busy() || time.Now().After(until) {
			return nil
		}
		say("waiting for a quiet machine; its load is %s", m.LoadFrom)
		if err := sleep(ctx, min(15*time.Second, most)); err != nil {
			return err
		}
	}
}

// Busy reports whether the machine had a significant load before the benchmark: above a quarter of its cores.
func (m machine) Busy() bool {
	load, err := strconv.ParseFloat(m.LoadFrom, 64)
	return err == nil && load > float64(m.Cores)/4
}

// fieldOf returns the value of the first line "name: value" or "name=value" of a file, or "".
func fieldOf(path, name string) string {
	raw, _ := os.ReadFile(path) // "" for a missing file
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}

// versionOf returns a string such as "Go 1.26.0" for a command and its output.
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
