package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// scaleMachine is where and when a scale run was.
type scaleMachine struct {
	Date   string   `json:"date"`
	Commit string   `json:"commit"`
	CPU    string   `json:"cpu"`
	Cores  int      `json:"cores"`
	Memory float64  `json:"memory_gib"`
	Go     string   `json:"go"`
	Redis  string   `json:"redis"`
	Load   []string `json:"load_average"` // of the minute before the run, and of its last minute
}

// describeMachine describes the machine and the programs after a run. What cannot be read is "unknown".
func describeMachine(ctx context.Context, redis, loadBefore string) scaleMachine {
	m := scaleMachine{
		Date: time.Now().UTC().Format(time.DateOnly), Commit: commit(ctx),
		CPU: "unknown", Cores: runtime.NumCPU(), Go: strings.TrimPrefix(runtime.Version(), "go"), Redis: redis, Load: []string{loadBefore, loadAverage()},
	}
	if _, model, ok := strings.Cut(readProc("cpuinfo"), "model name\t: "); ok {
		m.CPU, _, _ = strings.Cut(model, "\n")
	}
	var kb float64
	if _, total, ok := strings.Cut(readProc("meminfo"), "MemTotal:"); ok {
		_, _ = fmt.Sscan(total, &kb)
	}
	m.Memory = kb / (1 << 20)
	return m
}

// busy reports whether the machine had much other work before the run.
func (m scaleMachine) busy() bool {
	if len(m.Load) == 0 {
		return false
	}
	before, err := strconv.ParseFloat(m.Load[0], 64)
	return err == nil && before > float64(m.Cores)
}

// commit is the commit of the sources, with a + if they have been changed since.
func commit(ctx context.Context) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", "*.go", "*.lua", "go.mod").Output()
	if err != nil || len(changed) > 0 {
		return string(bytes.TrimSpace(id)) + "+"
	}
	return string(bytes.TrimSpace(id))
}

func loadAverage() string {
	first, _, ok := strings.Cut(readProc("loadavg"), " ")
	if !ok {
		return "unknown"
	}
	return first
}

func readProc(name string) string {
	b, _ := os.ReadFile("/proc/" + name) // none on other systems
	return string(b)
}
