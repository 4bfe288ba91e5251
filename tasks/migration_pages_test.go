package tasks_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What the pages for those who come from elsewhere say in a line of code compiles, and so is there.
func TestPagesNameWhatExists(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	pkg, errs := c.load(prelude, comingPrelude)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	span, name := regexp.MustCompile("`[^`]+`"), regexp.MustCompile(`^(\w+)[.([]`)
	body := pkg.Scope().Lookup("body").(*types.Func).Scope().Pos() // where the imports of the prelude are known
	for _, page := range []string{"../docs/how-to/from-asynq.md", "../docs/how-to/from-celery.md"} {
		found := 0
		for n, line := range ourLines(t, page) {
			for _, code := range span.FindAllString(line, -1) {
				code = strings.TrimPrefix(strings.Trim(code, "`"), "return ")
				if first := name.FindStringSubmatch(code); first == nil || !known(pkg, body, first[1]) {
					continue
				}
				found++
				if err := c.expression(pkg, body, code); err != nil {
					t.Errorf("%s:%d: %s: %v", page, n+1, code, err)
				}
			}
		}
		if found < 60 {
			t.Errorf("%s: got %d pieces of code; is it read as it should be?", page, found)
		}
	}
}

// ourLines returns the lines of a page, without blocks of code and what tables have in their first column, which is
// theirs.
func ourLines(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.ReplaceAll(string(text), `\|`, "or"), "\n")
	in := false
	for i, line := range lines {
		fence := strings.HasPrefix(line, "```")
		if fence {
			in = !in
		}
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 && cells[0] == "" {
			lines[i] = cells[2]
		}
		if in || fence {
			lines[i] = ""
		}
	}
	return lines
}

// known reports whether a name is one of the prelude or of an import there.
func known(pkg *types.Package, pos token.Pos, name string) bool {
	_, obj := pkg.Scope().Innermost(pos).LookupParent(name, token.NoPos)
	return obj != nil && obj.Parent() != types.Universe
}

func (c *compiler) expression(pkg *types.Package, pos token.Pos, code string) error {
	expr, err := parser.ParseExprFrom(c.fset, "", code, 0)
	if err != nil {
		return fmt.Errorf("no expression: %w", err)
	}
	return types.CheckExpr(c.fset, pkg, pos, expr, &types.Info{Types: map[ast.Expr]types.TypeAndValue{}})
}

// comingPrelude has what the tables use.
const comingPrelude = `package page

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/tasks"
	"muster/tasks/tasktype"
)

type (
	In  = int
	Out = int
)

var (
	F, G, H   tasks.Task[int, int]
	P         tasks.Task[tasks.Pair[int, int], int]
	Body      tasks.Task[[]int, int]
	Survivors tasks.Task[[]tasks.Outcome[int], int]
	Cb        tasks.Task[int, int]
	Eb        tasks.Task[tasks.Failure, string]
	Instead   tasks.Task[tasks.Failure, int]

	s, a   tasks.Signature[int]
	b      tasks.Signature[string]
	ss     []tasks.Signature[int]
	header tasks.Signature[[]int]
	each   func(tasks.Signature[int]) tasks.Signature[int]
	f      func(context.Context, int) (int, error)
	plan   func(context.Context, int) (tasks.Signature[int], error)
	worth  func(error) bool

	run     *tasks.AsyncResult[int]
	listRun *tasks.AsyncResult[[]int]
	nodes   []tasktype.Node
	w       io.Writer
	rdb     redis.UniversalClient

	scheduler       *tasks.Scheduler
	WorkerConfig    tasks.WorkerConfig
	SchedulerConfig tasks.SchedulerConfig

	opts     []tasks.CallOption
	sendOpts []tasks.SendOption

	in, n, x, y, done, total int
	xs []int
	pairs []tasks.Pair[int, int]
	d, base, limit, ttl time.Duration
	at time.Time
	t *testing.T
	url, id, node, token, queue, key, name, spec string
	h map[string]string
)
`
