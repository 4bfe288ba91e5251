package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// scaleReport is what a scale run has measured.
type scaleReport struct {
	Machine scaleMachine `json:"machine"`
	Cells   []cell       `json:"cells"`
	Idle    []idleCell   `json:"idle"`
	Sizes   []sizeCell   `json:"sizes"`
	NotRun  []notRun     `json:"not_run"`
}

// workTitles are the works in the tables, in their order.
var workTitles = []struct{ work, title string }{
	{workSingles, "single task"},
	{workPaced, "single task, 200 a second"},
	{workChains, "task of a chain of 10"},
	{workGroups, "task of a group of 100"},
	{workChords, "task of a chord of 100"},
	{workItems, "item of a work queue"},
	{workPages, "page of a site"},
}

// blocks are the parts of the page that a run writes, by name.
func (rep *scaleReport) blocks() map[string]string {
	return map[string]string{
		"run": rep.runText(), "costs": rep.costTable(), "idle": rep.idleTable(), "growth": rep.growthTable(), "sizes": rep.sizeTable(), "examples": rep.exampleTable(),
	}
}

// blockOrder is the order in which they are printed.
var blockOrder = []string{"run", "costs", "idle", "growth", "sizes", "examples"}

func (rep *scaleReport) markdown() string {
	blocks := rep.blocks()
	var b strings.Builder
	for _, name := range blockOrder {
		fmt.Fprintf(&b, "## %s\n\n%s\n", name, blocks[name])
	}
	return b.String()
}

// missing names what a page would lack: works without a cell, workers without work, and sizes.
func (rep *scaleReport) missing() []string {
	var all []string
	for _, w := range workTitles {
		if _, ok := rep.cost(w.work, 1); !ok {
			all = append(all, w.work)
		}
	}
	if len(rep.Idle) == 0 {
		all = append(all, "idle")
	}
	if len(rep.Sizes) == 0 {
		all = append(all, sizesOnly)
	}
	return all
}

// writePage replaces the blocks of a page. Each is between the lines <!-- scale: NAME --> and <!-- end -->. A run that has
// not measured everything changes nothing: the page would lose rows.
func (rep *scaleReport) writePage(path string) error {
	if gone := rep.missing(); len(gone) > 0 {
		return fmt.Errorf("%s is not written, as the run has no %s", path, strings.Join(gone, ", "))
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	out, err := fillBlocks(string(page), rep.blocks())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(out), 0o644)
}

func fillBlocks(page string, blocks map[string]string) (string, error) {
	for name, text := range blocks {
		begin := "<!-- scale: " + name + " -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, "<!-- end -->")
		if !ok || !ended {
			return "", fmt.Errorf("it has no %q with a line <!-- end --> behind it", strings.TrimSpace(begin))
		}
		page = before + begin + text + "<!-- end -->" + after
	}
	return page, nil
}

// table is a table in Markdown.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(head)))
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// number writes a measured number with two digits, or all before the point, in groups of three.
func number(v float64) string {
	if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1-int(math.Floor(math.Log10(v))), 64)
	}
	return thousands(strconv.FormatFloat(v, 'f', 0, 64))
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func (rep *scaleReport) runText() string {
	m := rep.Machine
	text := fmt.Sprintf("Measured on %s at commit %s: %s, %d cores, %.0f GiB; Redis %s, Go %s; load average %s, processes of the run included.\n",
		m.Date, m.Commit, m.CPU, m.Cores, m.Memory, m.Redis, m.Go, strings.Join(m.Load, " before, at the end "))
	if m.busy() {
		text += "\nThe machine was overloaded with other work during this run. That makes processor time higher than on a quiet one, as caches are\n" +
			"shared and batches are smaller: the numbers are on the safe side, those for 200 tasks a second most of all.\n"
	}
	return text
}

// cost is what a task of a work costs at most on so many nodes of Redis, with any number of workers.
func (rep *scaleReport) cost(work string, nodes int) (most cell, ok bool) {
	for _, c := range rep.Cells {
		if c.Work != work || c.Nodes != nodes {
			continue
		}
		if !ok {
			most, ok = c, true
			continue
		}
		most.Redis, most.Worker, most.Sender = max(most.Redis, c.Redis), max(most.Worker, c.Worker), max(most.Sender, c.Sender)
		most.Commands, most.Scripts, most.Traffic = max(most.Commands, c.Commands), max(most.Scripts, c.Scripts), max(most.Traffic, c.Traffic)
		most.Bytes, most.Busiest = max(most.Bytes, c.Bytes), max(most.Busiest, c.Busiest)
	}
	return most, ok
}

// half is how much of a core of Redis the model uses: the rest is for peaks, and for the time in which requests wait.
const half = 0.5

func (rep *scaleReport) costTable() string {
	var rows [][]string
	for _, w := range workTitles {
		c, ok := rep.cost(w.work, 1)
		if !ok {
			continue
		}
		rows = append(rows, []string{
			w.title, number(c.Redis), number(c.Worker), number(c.Sender), number(c.Scripts), number(c.Commands), number(c.Traffic), number(c.Bytes),
			number(roundDown(half * 1e6 / c.Redis)),
		})
	}
	return table([]string{"one", "Redis µs", "worker µs", "sender µs", "scripts", "commands", "bytes sent and received", "bytes kept", "a second on half a core of Redis"}, rows)
}

// roundDown keeps two digits.
func roundDown(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return math.Floor(v/unit) * unit
}

func (rep *scaleReport) idleTable() string {
	var rows [][]string
	for _, c := range rep.Idle {
		w := float64(c.Workers)
		rows = append(rows, []string{fmt.Sprint(c.Workers), fmt.Sprint(c.Nodes), number(c.Commands / w), number(c.Redis / w), number(c.Worker / w)})
	}
	return table([]string{"idle workers", "nodes of Redis", "commands a second, each", "Redis µs a second, each", "worker µs a second, each"}, rows)
}

// growthTable has a line for each work and number of nodes, and a column for each number of workers.
func (rep *scaleReport) growthTable() string {
	var workers, nodes []int
	for _, c := range rep.Cells {
		workers, nodes = append(workers, c.Workers), append(nodes, c.Nodes)
	}
	slices.Sort(workers)
	slices.Sort(nodes)
	workers, nodes = slices.Compact(workers), slices.Compact(nodes)
	head := []string{"one", "nodes of Redis"}
	for _, w := range workers {
		head = append(head, count(w, "worker"))
	}
	head = append(head, "busiest node", "times one server")
	var rows [][]string
	for _, w := range workTitles {
		for _, n := range nodes {
			row := []string{w.title, fmt.Sprint(n)}
			for _, k := range workers {
				text := ""
				for _, c := range rep.Cells {
					if c.Work == w.work && c.Nodes == n && c.Workers == k {
						text = number(c.Redis) + " + " + number(c.Worker)
					}
				}
				row = append(row, text)
			}
			one, _ := rep.cost(w.work, 1)
			if c, ok := rep.cost(w.work, n); ok && w.work != workPages {
				rows = append(rows, append(row, fmt.Sprintf("%.0f %%", 100*c.Busiest), fmt.Sprintf("%.1f", one.Redis/(c.Redis*c.Busiest))))
			}
		}
	}
	return table(head, rows)
}

// count is a number of things, as in "1 worker" or "2 workers".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

var sizeTitles = map[string]string{workGroups: "group", workChords: "chord", workItems: "queue"}

func (rep *scaleReport) sizeTable() string {
	var rows [][]string
	for i, c := range rep.Sizes {
		title := sizeTitles[c.Work] + " of " + thousands(fmt.Sprint(c.Size))
		if c.Work == workGroups && c.Size > groupLimit {
			title = fmt.Sprintf("%d groups of %s", c.Size/groupLimit, thousands(fmt.Sprint(groupLimit)))
		}
		rows = append(rows, []string{
			title, number(c.RedisIn), number(c.RedisOut), number(c.Sender), number(c.Worker), number(c.Waiting), number(c.Ended),
			number(c.SendPeak / 1e6), number(c.ReadPeak / 1e6), number(c.WorkPeak / 1e6),
		})
		if i == len(rep.Sizes)-1 || rep.Sizes[i+1].Work != c.Work {
			rows = append(rows, rep.sizeRatio(c))
		}
	}
	for _, n := range rep.NotRun {
		rows = append(rows, []string{sizeTitles[n.Work] + " of " + thousands(fmt.Sprint(n.Size)), fmt.Sprintf("left out: Redis needs %.1f GB", n.Needs/1e9), "", "", "", "", "", "", "", ""})
	}
	return table([]string{"", "Redis µs to send", "to run", "sender µs", "worker µs", "bytes waiting", "bytes ended", "sender MB", "with the values MB", "worker MB"}, rows)
}

// sizeRatio is the line that compares the last size of a work with its first.
func (rep *scaleReport) sizeRatio(last sizeCell) []string {
	first := rep.Sizes[slices.IndexFunc(rep.Sizes, func(c sizeCell) bool { return c.Work == last.Work })]
	row := []string{"largest : smallest"}
	for _, pair := range [][2]float64{
		{last.RedisIn, first.RedisIn}, {last.RedisOut, first.RedisOut}, {last.Sender, first.Sender}, {last.Worker, first.Worker}, {last.Waiting, first.Waiting}, {last.Ended, first.Ended},
		{last.SendPeak, first.SendPeak}, {last.ReadPeak, first.ReadPeak}, {last.WorkPeak, first.WorkPeak},
	} {
		row = append(row, fmt.Sprintf("%.2f", pair[0]/pair[1]))
	}
	return row
}

// example is a load that the page calculates with.
type example struct {
	what     string
	work     string
	rate     float64 // tasks a second
	takes    float64 // s, of which the slot is busy
	cpu      float64 // s of processor time of the handler
	kept     float64 // s for which results are kept
	machines int     // with a worker each, if that is given; else as many as are needed
}

var examples = []example{
	{what: "1,000 single tasks a second", work: workSingles, rate: 1000, takes: 0.1, cpu: 0.001, kept: 3600},
	{what: "the same as groups of 100", work: workGroups, rate: 1000, takes: 0.1, cpu: 0.001, kept: 3600},
	{what: "10⁶ pages a day, three times as many at the peak", work: workPages, rate: 3e6 / 86400, takes: 2, kept: 86400 / 3},
	{what: "tasks of 1 s that keep 50 machines with 32 slots busy", work: workPaced, rate: math.Floor(50 * slotsOfWorker / slotMargin), takes: 1, kept: 3600, machines: 50},
}

const (
	slotsOfWorker = 32
	coreUse       = 0.7 // of a machine's cores
	slotMargin    = 1.5 // slots for each that is busy
)

func (rep *scaleReport) exampleTable() string {
	var rows [][]string
	for _, e := range examples {
		c, ok := rep.cost(e.work, 1)
		if !ok {
			continue
		}
		slots := math.Ceil(e.rate * e.takes * slotMargin)
		workers := math.Ceil(slots / slotsOfWorker)
		if e.machines > 0 {
			slots, workers = float64(e.machines*slotsOfWorker), float64(e.machines)
		}
		nodes, busiest := rep.nodes(e.work, e.rate, workers)
		cores := e.rate * (e.cpu + c.Worker/1e6) / coreUse
		rows = append(rows, []string{
			e.what, number(e.rate), number(rep.busiestCores(c, e.rate, workers)), nodes, number(busiest), number(slots), fmt.Sprint(workers), number(cores),
			fmt.Sprintf("%s MB", number(e.rate*e.kept*c.Bytes/1e6)),
		})
	}
	return table([]string{
		"load", "a second", "cores of one Redis", "nodes of Redis", "cores of the busiest", "slots", "workers of 32 slots", "cores of workers", "results kept in Redis",
	}, rows)
}

// busiestCores is how many cores the busiest node needs where a task costs c.
func (rep *scaleReport) busiestCores(c cell, rate, workers float64) float64 {
	return (rate*c.Redis + workers*rep.idlePerWorker(c.Nodes)) / 1e6 * c.Busiest
}

// nodes is the smallest number of nodes, of those that were measured, whose busiest one has at most half a core to do; and
// what it has to do, which is more with "more than" the largest.
func (rep *scaleReport) nodes(work string, rate, workers float64) (text string, busiest float64) {
	for n := 1; ; n++ {
		c, ok := rep.cost(work, n)
		if !ok {
			return fmt.Sprint("more than ", n-1), busiest
		}
		if busiest = rep.busiestCores(c, rate, workers); busiest <= half {
			return fmt.Sprint(n), busiest
		}
	}
}

// idlePerWorker is the most µs a second that all nodes of Redis need for a worker without work.
func (rep *scaleReport) idlePerWorker(nodes int) (most float64) {
	for _, c := range rep.Idle {
		if c.Nodes == nodes {
			most = max(most, c.Redis/float64(c.Workers))
		}
	}
	return most
}
