package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"muster/internal/redistest"
	"muster/internal/testutil"
	"muster/tasks"
)

// killedDir is the environment variable with the directory of a program that TestKilledProgram kills.
const killedDir = "MUSTER_TEST_EMBEDDED_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedDir); dir != "" {
		if err := program(dir); err != nil {
			fmt.Println("failed", err)
		}
		return
	}
	redistest.Main(m)
}

const workflows = 1000

// program runs workflows on a directory until all have ended. It prints "have N" for each that had ended before, "ran N" for each call
// of the handler, and "ended N" for each result.
func program(dir string) error {
	ctx := context.Background()
	saveEvery = 200 * time.Millisecond
	s, err := Start(Config{Dir: dir})
	if err != nil {
		return err
	}
	client, err := tasks.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	for i := range workflows {
		switch p, err := client.Workflow(fmt.Sprint(i)).Progress(ctx); {
		case err == nil && p.Ended:
			fmt.Println("have", i)
		case errors.Is(err, tasks.ErrNotFound):
			if _, err := double.S(i).Send(ctx, client, tasks.ID(fmt.Sprint(i))); err != nil {
				return err
			}
		case err != nil:
			return err
		}
	}
	mux := tasks.NewMux()
	tasks.Handle(mux, double, func(_ context.Context, n int) (int, error) {
		fmt.Println("ran", n)
		return 2 * n, nil
	})
	worker, err := tasks.StartWorker(ctx, client, mux, tasks.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for i := range workflows {
		if got, err := tasks.Attach[int](client, fmt.Sprint(i)).Wait(ctx); err != nil || got != 2*i {
			return fmt.Errorf("workflow %d: %d, %w", i, got, err)
		}
		fmt.Println("ended", i)
	}
	fmt.Println("all")
	return errors.Join(worker.Stop(), client.Close(), s.Close())
}

// A program that is killed loses at most the changes of the interval: what had ended before has its result and does not run again, and the
// rest runs.
func TestKilledProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for kept, round := map[string]bool{}, 0; ; round++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), killedDir+"="+dir), os.Stderr
		out := testutil.Must(cmd.StdoutPipe())(t)
		testutil.Ok(t, cmd.Start())
		have, ended, over := map[string]bool{}, map[string]time.Time{}, false
		var deadline <-chan time.Time
		lines := make(chan string)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
		}()
		for open := true; open; {
			select {
			case <-deadline:
				testutil.Ok(t, cmd.Process.Kill())
				deadline = nil
			case line, ok := <-lines:
				open = ok
				switch word, n, _ := strings.Cut(line, " "); word {
				case "have":
					have[n] = true
				case "ran":
					if have[n] {
						t.Errorf("round %d: workflow %s had a result, and ran again", round, n)
					}
				case "ended":
					ended[n] = time.Now()
					if deadline == nil && round < 5 {
						deadline = time.After(rand.N(1500 * time.Millisecond))
					}
				case "all":
					over = true
				case "failed":
					t.Fatal(line)
				}
			}
		}
		_ = cmd.Wait()
		killed := time.Now()
		for n := range kept {
			if !have[n] {
				t.Errorf("round %d: the result of workflow %s is lost", round, n)
			}
		}
		if over {
			return
		}
		for n, at := range ended {
			kept[n] = killed.Sub(at) > time.Second // the interval is a fifth of this
			if !kept[n] && !have[n] {
				delete(kept, n)
			}
		}
	}
}
